"""The asynchronous client of Tidemark.

    async with connect("127.0.0.1:19531") as log:
        await log.append("flights", b"...", key=b"AA")
        async for batch in log.read("flights", until="now"):
            ...

What is not here stands in a subpackage: every error in `broker.client.errors`; what `log.admin`,
`log.barriers`, `log.broadcast` and `log.collections` return in `broker.client.cluster`; what
`log.commits` returns in `broker.client.txn`.
"""

from broker.client.append.batch_producer import Gathering
from broker.client.append.outbox import SendLimits
from broker.client.append.outgoing_batch import Ticket
from broker.client.batch import AppendedBatch, MessageBatch
from broker.client.client import Client
from broker.client.cluster.barrier import Barrier, Peer
from broker.client.cluster.cursor import Cursor
from broker.client.cluster.measurement import Measurement
from broker.client.cluster.watch import Watch
from broker.client.connect import DEFAULT_SERVER, connect
from broker.client.durability import Durability
from broker.client.errors import (
    AppendsFailed,
    ClosedClient,
    ConnectionLost,
    DeadlineExceeded,
    InvalidArgument,
    NoSuchCollection,
    OutcomeUnknown,
    OutOfRange,
    SchemaVersionMismatch,
    ServerRefusal,
    TidemarkError,
    TransactionExpired,
    Unrecoverable,
)
from broker.client.message import Appended, Batch, Message, Received
from broker.client.net.deadlines import Deadlines
from broker.client.read.row_scanner import RowScanner
from broker.client.read.scanner import BatchScanner, Scanner
from broker.client.read.start import Start, Until
from broker.client.txn.batch_commits import BatchCommitted
from broker.client.txn.stage import Stage, StagedPart
from broker.client.txn.txn import Txn
from broker.model.broadcast import ResourceKey
from broker.model.collection import Collection
from broker.model.cut import Cut
from broker.transport.tls import Tls

__all__ = [
    "DEFAULT_SERVER",
    "Appended",
    "AppendedBatch",
    "AppendsFailed",
    "Barrier",
    "Batch",
    "BatchCommitted",
    "BatchScanner",
    "Client",
    "ClosedClient",
    "Collection",
    "ConnectionLost",
    "Cursor",
    "Cut",
    "DeadlineExceeded",
    "Deadlines",
    "Durability",
    "Gathering",
    "InvalidArgument",
    "Measurement",
    "Message",
    "MessageBatch",
    "NoSuchCollection",
    "OutOfRange",
    "OutcomeUnknown",
    "Peer",
    "Received",
    "ResourceKey",
    "RowScanner",
    "Scanner",
    "SchemaVersionMismatch",
    "SendLimits",
    "ServerRefusal",
    "Stage",
    "StagedPart",
    "Start",
    "Ticket",
    "TidemarkError",
    "Tls",
    "TransactionExpired",
    "Txn",
    "Unrecoverable",
    "Until",
    "Watch",
    "connect",
]
