"""`tidemark partition`, `alias`, `index` and `database`."""
