"""Drivers of the metadata store (`broker/ports/meta.py`): SQLite, and memory for tests.

Both, and `broker/etcd`, pass `tests/contracts/test_meta_store.py`, and refuse what not every store
takes: a write of more than 100 keys or 1 MiB. On top of each, `stored_recovery.py` keeps the
recovery snapshots of pchannels, and `large_values.py` cuts the largest of their values into parts.
"""
