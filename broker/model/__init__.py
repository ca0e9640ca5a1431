"""Frozen values that every other package may hold: ids, messages, records, positions, failures.

This package imports nothing of ours and does nothing: no I/O, no clock, no async.
"""
