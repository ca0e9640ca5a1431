"""The service that switches the log."""
