"""The lock that keeps a cut from splitting a broadcast or a batch commit."""
