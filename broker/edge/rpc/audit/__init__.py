"""What every call leaves in the audit: its kind, what it names, and how it ended."""
