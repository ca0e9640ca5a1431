"""Compacts collections by key: keeps the newest message of each key."""
