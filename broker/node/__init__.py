"""The streaming node: a supervised subtree of actors for each pchannel it serves, and a Directory.

It knows no wire format, and no log or metadata driver. Start at README.md in this folder.
"""
