"""The client without `await`, for scripts and notebooks: the same names, each call blocks.

    from broker.client.sync import connect

    with connect("127.0.0.1:19531") as log:
        log.append("flights", b"...", key=b"AA")
        for batch in log.read("flights", until="now"):
            ...

Messages, results and errors are those of `broker.client`.
"""

from broker.client.sync.facade import (
    Barrier,
    BatchScanner,
    Client,
    Cursor,
    Peer,
    RowScanner,
    Scanner,
    Stage,
    StagedBatch,
    Ticket,
    Txn,
    Watch,
    connect,
)

__all__ = [
    "Barrier",
    "BatchScanner",
    "Client",
    "Cursor",
    "Peer",
    "RowScanner",
    "Scanner",
    "Stage",
    "StagedBatch",
    "Ticket",
    "Txn",
    "Watch",
    "connect",
]
