"""Copies a log from one driver to another, while it is written, and goes on with the copy."""
