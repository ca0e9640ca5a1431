"""The metadata store on an etcd cluster: the driver of `broker/ports/meta.py` for many machines.

A room of its own, because it needs etcd's wire format and our gRPC transport, which the other
drivers (`broker/meta`) never see. README.md says how a write is applied once whatever gets lost.
"""
