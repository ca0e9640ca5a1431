"""Decisions, as plain functions and values: no async, clock, randomness, I/O or logging.

`now` is an argument and results are returned. A refusal is a value, a broken invariant an assert.
"""
