"""What of a log nobody needs, and who holds it all the same."""
