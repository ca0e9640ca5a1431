"""Space that comes back: the service of purges."""
