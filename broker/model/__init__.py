"""Immutable values that every package may use: ids, messages, records, positions, failures.

Imports nothing of the other packages and does nothing: no I/O, no clock, no async.
"""
