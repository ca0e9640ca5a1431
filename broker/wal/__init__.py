"""Drivers of the log port, and offline inspection of what they stored. See README.md here."""
