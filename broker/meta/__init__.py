"""Drivers of `broker/ports/meta.py`: SQLite for a broker on one machine, memory for tests.

Both pass `tests/contracts/test_meta_store.py`.
"""
