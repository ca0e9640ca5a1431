"""The streaming node: one supervised subtree of actors for each pchannel it owns, and a Directory.

It never speaks a wire format and never knows which log or metadata driver it runs on.
Start at `messages.py` (what can be asked), then `appender.py`, `scanner.py`, `directory.py`.
"""
