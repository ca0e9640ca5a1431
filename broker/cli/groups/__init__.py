"""Consumer groups on the command line."""
