"""Decisions of the broker as plain functions and values: no I/O, async, clock, randomness, logging.

The current time is an argument, results are returned. A refused request is a `Refusal` value; a
broken invariant is a failed assert.
"""
