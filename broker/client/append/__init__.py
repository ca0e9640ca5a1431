"""Appending: from the caller to one pchannel, and back with the acknowledgement."""
