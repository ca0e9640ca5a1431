"""Answers to probes and scrapers: the HTTP port, and whether the process can serve."""
