"""Backups of a live broker, consistent at one tick, and restores of them.

The page of this room (README.md) has the argument why a backup is consistent and why an interrupted
one is never mistaken for a whole one.
"""
