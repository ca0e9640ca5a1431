"""Decisions, as plain functions and values: no async, no clock, no randomness, no I/O, no logging.

`now` is an argument and results are returned. A refusal is a value; a broken invariant is an assert.
"""
