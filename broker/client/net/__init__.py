"""Connections, channel assignments, and the retry rules that every call shares."""
