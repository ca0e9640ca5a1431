"""The command groups: one file for each group of `tidemark GROUP COMMAND`."""
