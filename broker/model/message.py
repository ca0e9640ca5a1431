"""Message types and their meaning for a log, and messages as they are appended and delivered."""

from enum import IntEnum
from typing import Final

from broker.model.ids import MessageId, SegmentId, Term, TimeTick
from broker.model.stage import StageName
from broker.model.txn import TxnContext
from broker.value import value


class MessageType(IntEnum):
    """Numbers of `milvus.proto.messages.MessageType`; also the `kind` of a stored record."""

    TIME_TICK = 1
    INSERT = 2
    DELETE = 3
    FLUSH = 4
    CREATE_COLLECTION = 5
    DROP_COLLECTION = 6
    CREATE_PARTITION = 7
    DROP_PARTITION = 8
    MANUAL_FLUSH = 9
    CREATE_SEGMENT = 10
    IMPORT = 11
    SCHEMA_CHANGE = 12
    ALTER_COLLECTION = 13
    ALTER_LOAD_CONFIG = 14
    DROP_LOAD_CONFIG = 15
    CREATE_DATABASE = 16
    ALTER_DATABASE = 17
    DROP_DATABASE = 18
    ALTER_ALIAS = 19
    DROP_ALIAS = 20
    RESTORE_RBAC = 21
    ALTER_USER = 22
    DROP_USER = 23
    ALTER_ROLE = 24
    DROP_ROLE = 25
    ALTER_USER_ROLE = 26
    DROP_USER_ROLE = 27
    ALTER_PRIVILEGE = 28
    DROP_PRIVILEGE = 29
    ALTER_PRIVILEGE_GROUP = 30
    DROP_PRIVILEGE_GROUP = 31
    ALTER_RESOURCE_GROUP = 32
    DROP_RESOURCE_GROUP = 33
    CREATE_INDEX = 34
    ALTER_INDEX = 35
    DROP_INDEX = 36
    FLUSH_ALL = 37
    TRUNCATE_COLLECTION = 38
    RESTORE_SNAPSHOT = 39
    CREATE_SNAPSHOT = 40
    DROP_SNAPSHOT = 41
    BATCH_UPDATE_MANIFEST = 42
    REFRESH_EXTERNAL_COLLECTION = 43
    DROP_SNAPSHOTS_BY_COLLECTION = 44
    COMMIT_IMPORT = 45
    ROLLBACK_IMPORT = 46
    ALTER_RLS_METADATA = 47
    DROP_RLS_METADATA = 48
    ALTER_WAL = 700
    ALTER_REPLICATE_CONFIG = 800
    BEGIN_TXN = 900
    COMMIT_TXN = 901
    ROLLBACK_TXN = 902
    TXN = 999


PREPARE_TXN: Final = 1900
"""The kind of a record that prepares a staged transaction for the coordinator's decision.

It is not delivered to readers, and clients cannot append it. Milvus has no type of this number.
"""

GROUP_CHANGE: Final = 1901
"""The kind of a record that changes a consumer group; see `broker/node/groups/README.md`.

It is not delivered to readers, and clients cannot append it. Milvus has no type of this number.
"""

RELEASED: Final = 1902
"""The kind of a record of copies of delayed messages that are due, for consumer groups only.

As GROUP_CHANGE it is not delivered to other readers, and clients cannot append it.
"""

PURGE: Final = 1903
"""The kind of a record that purges a vchannel up to a tick; see `broker/core/space/purges.py`.

It is not delivered to readers, and clients cannot append it. Milvus has no type of this number.
"""

COMPACTION: Final = 1904
"""The kind of a record that says how far a vchannel is compacted: see `broker/core/compaction`.

It is not delivered to readers, and clients cannot append it. Milvus has no type of this number.
"""

LOG_STEPS: Final = frozenset({PREPARE_TXN, GROUP_CHANGE, RELEASED, PURGE, COMPACTION})
"""Steps that only parts of this broker append."""

KNOWN_TYPES = frozenset(int(kind) for kind in MessageType)

ANNOUNCED: Final = "tidemark.ddl"
"""The property of a change of definitions that the master has broadcast.

Its copies on vchannels are for the log, which keeps segments by them: readers who name no types do
not get them, as they do not get what the log itself writes, and they count as no rows. On the
control channel both is otherwise.
"""

SYSTEM_TYPES = frozenset(
    {
        MessageType.TIME_TICK,
        MessageType.BEGIN_TXN,
        MessageType.COMMIT_TXN,
        MessageType.ROLLBACK_TXN,
        MessageType.TXN,
    }
)
"""They pass every filter of message types."""

SELF_CONTROLLED_TYPES = frozenset(
    {MessageType.TIME_TICK, MessageType.CREATE_SEGMENT, MessageType.FLUSH}
)
"""Written by the log itself; clients cannot append them."""

TXN_TYPES = frozenset(
    {MessageType.BEGIN_TXN, MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN, MessageType.TXN}
)

BODY_TYPES = frozenset({MessageType.INSERT, MessageType.DELETE})
"""The types that a transaction may contain."""

ALL_PCHANNEL_TYPES = frozenset(
    {MessageType.FLUSH_ALL, MessageType.ALTER_REPLICATE_CONFIG, MessageType.ALTER_WAL}
)
"""Exclusive on the whole pchannel, whatever vchannel they name."""

EXCLUSIVE_TYPES = ALL_PCHANNEL_TYPES | {
    MessageType.CREATE_COLLECTION,
    MessageType.DROP_COLLECTION,
    MessageType.TRUNCATE_COLLECTION,
    MessageType.ALTER_COLLECTION,
    MessageType.SCHEMA_CHANGE,
    MessageType.CREATE_PARTITION,
    MessageType.DROP_PARTITION,
    MessageType.MANUAL_FLUSH,
    MessageType.CREATE_SNAPSHOT,
    MessageType.COMMIT_IMPORT,
    MessageType.ROLLBACK_IMPORT,
}
"""They end every open transaction in their scope: their vchannel, or the whole pchannel."""


@value
class NewMessage:
    """One message to append.

    `body` is the stored form: fields 2 and 3 of `milvus.proto.common.ImmutableMessage`.
    `size` is the estimate Milvus uses: payload plus keys plus values, in bytes.
    `barrier_tick` is 0, or a tick that the assigned tick must exceed.
    `txn` is its transaction; in a begin it holds the requested keepalive and no id.
    `pchannel_level`: it covers the whole pchannel, whatever vchannel it names.
    `stage`: in a begin, the stage of the transaction; otherwise it marks a command of the
    coordinator to a transaction of that stage.
    """

    vchannel: str
    type: int
    body: bytes
    size: int
    barrier_tick: int = 0
    txn: TxnContext | None = None
    pchannel_level: bool = False
    stage: StageName | None = None


@value
class NewRun(NewMessage):
    """Messages to append that differ in their stored forms alone, `bodies`; it has no `body`.

    `sizes` are those of the messages, `size` their sum. Stored in one record, so the outcome is
    that of the first message: each further one has the next id and tick.
    """

    bodies: tuple[bytes, ...] = ()
    sizes: tuple[int, ...] = ()

    def messages(self) -> list[NewMessage]:
        """Each message on its own."""
        return [
            NewMessage(self.vchannel, self.type, body, size)
            for body, size in zip(self.bodies, self.sizes, strict=True)
        ]


@value
class Appended:
    """Where one message was appended; it is as durable as was asked for."""

    id: MessageId
    tick: TimeTick
    last_confirmed_id: MessageId


@value
class AppendedInTxn(Appended):
    """The same for a message of a transaction; for a begin, `txn` is the new transaction."""

    txn: TxnContext


@value
class AppendedFlush(Appended):
    """The same for a message that flushed these segments."""

    segment_ids: tuple[SegmentId, ...]


@value
class Delivered:
    """One message delivered to a reader."""

    id: MessageId
    tick: TimeTick
    last_confirmed_id: MessageId
    term: Term
    body: bytes


@value
class DeliveredInTxn(Delivered):
    """A begin or a body of a transaction: tick and last confirmed id are those of its commit.

    `begins` is set on the begin only: its stored form does not contain the transaction's id.
    """

    begins: TxnContext | None


@value
class ClosedTick:
    """Every message with a tick <= `tick` was delivered, and none will follow.

    A tick without a record has `persisted` False and its last confirmed id as `id`.
    """

    tick: TimeTick
    id: MessageId
    last_confirmed_id: MessageId
    term: Term
    persisted: bool
