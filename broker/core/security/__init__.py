"""Who may do what: grants, roles, tokens, and the one function that decides."""
