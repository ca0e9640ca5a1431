"""Consumer groups as values."""
