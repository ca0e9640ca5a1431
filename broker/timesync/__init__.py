"""Time synchronisation: which time ticks hold for all of several peers at once.

Barriers that pchannels, producers and consumers report to, and that anybody may watch.
"""
