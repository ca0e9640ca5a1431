"""`tidemark auth`: users, roles and tokens."""
