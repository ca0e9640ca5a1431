"""Tidemark as a source of Spark: one micro-batch is a range of message ids on each vchannel.

Who runs what: the stream reader lives in a process of its own beside the driver and plans; `read`
runs in workers on pickled partitions and connects by itself. Nothing here imports the server.
"""
