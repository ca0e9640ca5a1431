"""What nodes ask of the rest about space: which collections keep how much, and the disk."""
