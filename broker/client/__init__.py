"""The asynchronous client of Tidemark.

async with connect("127.0.0.1:19531") as log:
    await log.append("flights", b"...", key=b"AA")
    async for batch in log.read("flights", until="now"):
        ...
"""

from broker.client.append.batch_producer import Gathering
from broker.client.append.outbox import SendLimits
from broker.client.append.outgoing_batch import Ticket
from broker.client.batch import AppendedBatch, MessageBatch
from broker.client.client import Client
from broker.client.cluster.admin import ActorInfo, ChannelInfo, ChannelTrouble, Damage, Health
from broker.client.cluster.barrier import Barrier, Peer
from broker.client.cluster.broadcast import Broadcasted, BroadcastInfo, Broadcasts, LockInfo
from broker.client.cluster.collections import Collections
from broker.client.cluster.cursor import Cursor
from broker.client.cluster.measure import Measure
from broker.client.cluster.watch import Watch
from broker.client.connect import DEFAULT_SERVER, connect
from broker.client.durability import Durability
from broker.client.errors import (
    AppendsFailed,
    BadAddress,
    BadTarget,
    BadTransaction,
    ChannelFenced,
    ChannelNotExist,
    ClosedClient,
    ConnectionLost,
    CursorMovedBack,
    DeadlineExceeded,
    ForkedClient,
    InvalidArgument,
    InvalidRequestSequence,
    InvalidTransactionState,
    MessageTooLarge,
    NoSuchCollection,
    NoSuchCursor,
    NotLocal,
    OperationIgnored,
    OutcomeUnknown,
    OutOfRange,
    ProtocolBroken,
    ReplicateViolation,
    ResourceAcquired,
    SchemaVersionMismatch,
    ServerFailed,
    ServerRefusal,
    ServerStopping,
    TermMismatch,
    TidemarkError,
    TransactionExpired,
    UnknownRefusal,
    Unrecoverable,
    WalNameMismatch,
)
from broker.client.message import Appended, Batch, Message, Received
from broker.client.net.deadlines import Deadlines
from broker.client.read.scanner import BatchScanner, Scanner
from broker.client.txn.batch_commits import AppCommits, BatchCommits, BatchCommitted
from broker.client.txn.stage import Stage, StagedPart
from broker.client.txn.txn import Txn
from broker.model.barrier import BarrierPeer, BarrierView
from broker.model.broadcast import ResourceDomain, ResourceKey
from broker.model.collection import Collection
from broker.model.cut import Cut
from broker.model.measured import SpanStep, TickChoice
from broker.model.named_cursor import CursorView

__all__ = [
    "DEFAULT_SERVER",
    "ActorInfo",
    "AppCommits",
    "Appended",
    "AppendedBatch",
    "AppendsFailed",
    "BadAddress",
    "BadTarget",
    "BadTransaction",
    "Barrier",
    "BarrierPeer",
    "BarrierView",
    "Batch",
    "BatchCommits",
    "BatchCommitted",
    "BatchScanner",
    "BroadcastInfo",
    "Broadcasted",
    "Broadcasts",
    "ChannelFenced",
    "ChannelInfo",
    "ChannelNotExist",
    "ChannelTrouble",
    "Client",
    "ClosedClient",
    "Collection",
    "Collections",
    "ConnectionLost",
    "Cursor",
    "CursorMovedBack",
    "CursorView",
    "Cut",
    "Damage",
    "DeadlineExceeded",
    "Deadlines",
    "Durability",
    "ForkedClient",
    "Gathering",
    "Health",
    "InvalidArgument",
    "InvalidRequestSequence",
    "InvalidTransactionState",
    "LockInfo",
    "Measure",
    "Message",
    "MessageBatch",
    "MessageTooLarge",
    "NoSuchCollection",
    "NoSuchCursor",
    "NotLocal",
    "OperationIgnored",
    "OutOfRange",
    "OutcomeUnknown",
    "Peer",
    "ProtocolBroken",
    "Received",
    "ReplicateViolation",
    "ResourceAcquired",
    "ResourceDomain",
    "ResourceKey",
    "Scanner",
    "SchemaVersionMismatch",
    "SendLimits",
    "ServerFailed",
    "ServerRefusal",
    "ServerStopping",
    "SpanStep",
    "Stage",
    "StagedPart",
    "TermMismatch",
    "TickChoice",
    "Ticket",
    "TidemarkError",
    "TransactionExpired",
    "Txn",
    "UnknownRefusal",
    "Unrecoverable",
    "WalNameMismatch",
    "Watch",
    "connect",
]
