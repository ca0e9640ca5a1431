"""The command groups: one module for each group of `tidemark GROUP COMMAND`."""
