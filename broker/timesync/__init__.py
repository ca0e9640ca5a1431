"""Time synchronisation: ticks that hold for many channels or many workers at once.

README.md has the kinds of barriers, with an example of each, and the named cursors.
"""
