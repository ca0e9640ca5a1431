"""Compaction by key: which messages are superseded, and when it is worth to remove them."""
