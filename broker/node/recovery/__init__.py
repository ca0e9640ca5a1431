"""Follows a log, and saves the snapshot that a restart continues from."""
