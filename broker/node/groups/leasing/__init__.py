"""Whom what a group has read goes to: shared, or in order."""
