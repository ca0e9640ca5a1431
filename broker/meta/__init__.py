"""Drivers of the metadata store (`broker/ports/meta.py`): SQLite, and memory for tests.

Both pass `tests/contracts/test_meta_store.py`. On top of either, `stored_recovery.py` keeps the
recovery snapshots of pchannels.
"""
