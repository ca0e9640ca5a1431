"""Spark's source and sink for Tidemark, over the async client.

The stream reader runs in a process of its own beside the driver and plans micro-batches. `read` and
`write` run in Python workers on pickled values and connect there. Nothing here imports the server.
"""
