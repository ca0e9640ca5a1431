"""Segments of rows: what the logs created, reservations, statistics and acknowledged flushes."""
