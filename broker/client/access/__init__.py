"""Who may do what, as `log.auth` shows and changes it."""
