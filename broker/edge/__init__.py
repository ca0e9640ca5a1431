"""The gRPC side of a broker: decodes requests, asks actors, encodes answers.

It decides nothing about logs, terms or placement. Start with `server.py`, then
`rpc/middleware.py`, `milvus/produce.py` and `milvus/consume.py`; `README.md` has the way through.
"""
