"""Message types with what each one means for a log, and the message as the write path sees it."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from broker.model.ids import MessageId, SegmentId, Term, TimeTick
from broker.model.stage import StageName
from broker.model.txn import TxnContext


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
    ALTER_WAL = 700
    ALTER_REPLICATE_CONFIG = 800
    BEGIN_TXN = 900
    COMMIT_TXN = 901
    ROLLBACK_TXN = 902
    TXN = 999


PREPARE_TXN: Final = 1900
"""The kind of a record that is no message: a staged transaction waits for the coordinator's word.

No reader is handed it, and no client may append it. Milvus has no type of this number.
"""

KNOWN_TYPES = frozenset(int(kind) for kind in MessageType)

SYSTEM_TYPES = frozenset(
    {
        MessageType.TIME_TICK,
        MessageType.BEGIN_TXN,
        MessageType.COMMIT_TXN,
        MessageType.ROLLBACK_TXN,
        MessageType.TXN,
    }
)
"""Never removed by a message-type filter."""

SELF_CONTROLLED_TYPES = frozenset(
    {MessageType.TIME_TICK, MessageType.CREATE_SEGMENT, MessageType.FLUSH}
)
"""Written by the log itself; a client may not append them."""

TXN_TYPES = frozenset(
    {MessageType.BEGIN_TXN, MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN, MessageType.TXN}
)

BODY_TYPES = frozenset({MessageType.INSERT, MessageType.DELETE})
"""What a transaction may hold."""

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
}
"""These end every open transaction of their scope: their vchannel, or the whole pchannel."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """One message to append.

    `body` is the stored form: fields 2 and 3 of `milvus.proto.common.ImmutableMessage`.
    `size` is the estimate Milvus uses: payload plus keys plus values, in bytes.
    `barrier_tick` is 0, or a tick that the assigned tick must exceed.
    `txn` is the transaction it belongs to; of a begin it holds the wanted keepalive, and no id.
    `pchannel_level`: it concerns the whole pchannel, whatever vchannel it names.
    `stage`: of a begin, the stage it is of; of the rest, that this is the coordinator's word on it.
    """

    vchannel: str
    type: int
    body: bytes
    size: int
    barrier_tick: int = 0
    txn: TxnContext | None = None
    pchannel_level: bool = False
    stage: StageName | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """Where one message landed; it is as durable as the log promises when this exists."""

    id: MessageId
    tick: TimeTick
    last_confirmed_id: MessageId


@dataclass(frozen=True, slots=True)
class AppendedInTxn(Appended):
    """The same for a message of a transaction; of a begin, `txn` is the one that was opened."""

    txn: TxnContext


@dataclass(frozen=True, slots=True)
class AppendedFlush(Appended):
    """The same for a message that flushed these segments."""

    segment_ids: tuple[SegmentId, ...]


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message handed to a reader."""

    id: MessageId
    tick: TimeTick
    last_confirmed_id: MessageId
    term: Term
    body: bytes


@dataclass(frozen=True, slots=True)
class DeliveredInTxn(Delivered):
    """A begin or a body: tick and last confirmed id are those of the commit, which comes later.

    `begins` is set on the begin alone, whose stored form does not know its transaction yet.
    """

    begins: TxnContext | None


@dataclass(frozen=True, slots=True)
class ClosedTick:
    """Every message with a tick <= `tick` has been handed over, and none will come.

    A tick that is only announced has `persisted` False and carries its last confirmed id as `id`.
    """

    tick: TimeTick
    id: MessageId
    last_confirmed_id: MessageId
    term: Term
    persisted: bool
