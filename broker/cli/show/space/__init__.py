"""What is kept of collections, and what was purged."""
