"""The gRPC side of a broker: decodes, asks an actor, encodes.

It decides nothing about logs, terms or placement. Start reading at `server.py` (what is served),
then `middleware.py` (what every call passes), `produce.py` and `consume.py` (the hot streams).
"""
