"""Messages, as a program appends them and as it reads them, and their wire form."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, TypedDict

from broker.client.batch_mark import BatchMark
from broker.client.batch_tick import BatchTick
from broker.client.durability import Durability
from broker.model.ids import BroadcastId, MessageId, PartitionId, TimeTick, VChannelName
from broker.model.message import SYSTEM_TYPES, MessageType
from schemas.encoding.base64_text import read_base64
from schemas.properties.broadcast_header import read_broadcast_id
from schemas.properties.insert_header import read_insert_header
from schemas.properties.keys import BARRIER_TICK, BARRIER_WAIT_MS, DELIVER_ID
from schemas.wire import message as wire_message

Key = bytes | str | int

KEY_PROPERTY = "tidemark.key"
HEADER_PROPERTY = "_h"
TICK_MAX = (1 << 64) - 1
TICK_LOGICAL_BITS = 18

NO_PROPERTIES: Mapping[str, str] = {}

_BYTES = (bytes, bytearray, memoryview)


@dataclass(frozen=True, slots=True)
class Message:
    """A message to append: `Message(b"late", key=b"IC 5", properties={"from": "Ulm"})`.

    `key` chooses the shard of a collection; readers get it back as bytes. `properties` are the
    program's own; names that begin with `_` are reserved. `barrier_time_tick`: the message gets
    a larger tick than this one; the append waits until the server's clock has passed it.
    `type`, `version` and `header` (in protobuf) are what Milvus's own messages need.
    """

    payload: bytes
    key: Key | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    type: int = MessageType.INSERT
    version: int = 1
    header: bytes = b""
    barrier_time_tick: int = 0

    def __post_init__(self) -> None:
        """Raise TypeError for a payload that is not bytes, ValueError for an invalid tick."""
        check_payload(self.payload)
        if not 0 <= self.barrier_time_tick <= TICK_MAX:
            raise ValueError(
                f"barrier_time_tick {self.barrier_time_tick} is not a time tick (64 bits, unsigned)"
            )


def checked_messages(messages: Iterable[Message], barrier_time_tick: int = 0) -> list[Message]:
    """All of them, with this barrier unless it is 0; TypeError for one that is not a Message."""
    found = list(messages)
    for each in found:
        if not isinstance(each, Message):
            raise TypeError(f"a message must be a Message, not {type(each).__name__}")
    if not barrier_time_tick:
        return found
    return [replace(each, barrier_time_tick=barrier_time_tick) for each in found]


class Kind(TypedDict, total=False):
    """What Milvus's own messages need; see `Message`."""

    type: int
    version: int
    header: bytes
    barrier_time_tick: int


class Appended(NamedTuple):
    """An acknowledged message: its vchannel, id and tick.

    With durability "fsync" it survives a power cut. With less, the message may be lost in a crash,
    and its id given to another message.
    """

    vchannel: VChannelName
    id: MessageId
    tick: TimeTick
    last_confirmed_id: MessageId
    durability: Durability = "fsync"


class Received(NamedTuple):
    """A message that was read. On a vchannel `id` and `tick` only grow.

    The exception is a transaction: its messages are read together where it was committed, all with
    the tick of the commit and with their own, smaller ids.

    `collection` is the name that was read, None for a vchannel read by its own name. `tags` are
    all properties as stored, with the reserved ones.
    """

    payload: bytes
    id: MessageId
    tick: TimeTick
    vchannel: str
    collection: str | None
    type: int
    tags: Mapping[str, str]

    @property
    def key(self) -> bytes | None:
        """The key it was appended with, as bytes."""
        text = self.tags.get(KEY_PROPERTY)
        return None if text is None else b64decode(text)

    @property
    def properties(self) -> dict[str, str]:
        """The program's own properties."""
        return own_tags(self.tags)

    @property
    def partition_id(self) -> PartitionId | None:
        """The partition of the row; None for what no partition has. ValueError: a bad header.

        The log names one for every row of a collection whose rows it counts, `_default` where the
        program named none. `log.master.show_partitions` has the names.
        """
        return partition_of(self.type, self.tags.get(HEADER_PROPERTY, ""))

    @property
    def broadcast_id(self) -> BroadcastId | None:
        """The id of the broadcast that this message is a copy of; None for any other message.

        It is the same on every vchannel. After a crash a copy may be in a log twice. One reader
        yields the first copy only; a program that continues with another reader has to remember
        the ids it has applied.
        """
        text = self.tags.get("_bh")
        return None if text is None else BroadcastId(read_broadcast_id(text))

    @property
    def appended_id(self) -> MessageId:
        """The id that `append` returned: another one than `id` for a delayed message in a group."""
        text = self.tags.get(DELIVER_ID.key)
        return self.id if text is None else MessageId(DELIVER_ID.decode(text))

    @property
    def timestamp_ms(self) -> int:
        """The time in the tick, in Unix milliseconds."""
        return self.tick >> TICK_LOGICAL_BITS


class Batch(NamedTuple):
    """Messages of one vchannel in their order, as many as had arrived; possibly none.

    `closed_tick`: every message of this vchannel with a tick up to it has been yielded. `mark` is
    what `Cursor.commit` needs.
    """

    vchannel: VChannelName
    collection: str | None
    messages: list[Received]
    closed_tick: TimeTick | BatchTick
    mark: BatchMark | None = None

    @property
    def plain_closed_tick(self) -> TimeTick:
        """The closed tick as an integer that knows nothing about channels."""
        return TimeTick(int(self.closed_tick))


@lru_cache(maxsize=1024)
def partition_of(kind: int, header: str) -> PartitionId | None:
    """The partition that the header of a message of this type names. ValueError: a bad header."""
    if kind != MessageType.INSERT or not header:
        return None
    partitions = read_insert_header(read_base64(header)).partitions
    return PartitionId(partitions[0].partition_id) if partitions else None


def own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The program's own properties among all that are stored."""
    return {name: value for name, value in tags.items() if name[:1] != "_" and name != KEY_PROPERTY}


def check_payload(payload: object) -> None:
    """Raise TypeError when the payload is not bytes."""
    if not isinstance(payload, _BYTES):
        kind = type(payload).__name__
        advice = "; encode it first" if kind == "str" else ""
        raise TypeError(f"payload must be bytes, not {kind}{advice}")


def key_bytes(key: Key) -> bytes:
    """The key as readers get it: UTF-8 of a string, eight little-endian bytes of an integer."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    # The bytes that the shard's hash is made of.
    return key.to_bytes(8, "little", signed=True)


def encode(message: Message, vchannel: str, txn: str = "", wait_ms: int | None = None) -> bytes:
    """The `milvus.proto.messages.Message` to append; ValueError for a reserved property name.

    `txn`: the encoded transaction that the message belongs to, if any. `wait_ms`: how long a
    message with a barrier tick may wait for it at the server.
    """
    # The reserved properties come last and in a fixed order: the server caches what it has parsed,
    # and so finds the same bytes behind the payload of every plain message.
    plain = not message.properties and message.key is None
    own = {} if plain else _own_properties(message)
    if message.barrier_time_tick:
        own |= BARRIER_TICK.entry(message.barrier_time_tick)
        own |= {} if wait_ms is None else BARRIER_WAIT_MS.entry(wait_ms)
    reserved = _reserved(message.type, message.version, message.header, vchannel, txn)
    return wire_message(message.payload, own) + reserved


def unsendable(message: Message) -> str:
    """Why a program may not append this message; empty when it may."""
    if message.type in SYSTEM_TYPES:
        name = MessageType(message.type).name
        return f"only the log itself writes {name} messages; use `txn` for a transaction"
    return ""


def stored_properties(message: Message) -> dict[str, str]:
    """All properties of a message that has no vchannel yet; raises as `encode`."""
    header = b64encode(message.header).decode()
    reserved = {"_t": str(int(message.type)), "_v": str(message.version), "_h": header}
    return _own_properties(message) | reserved


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The program's properties; ValueError for a reserved name, TypeError for one not a str."""
    stored = dict(properties)
    for name, value in stored.items():
        _check_text(name, value)
        if name[:1] == "_" or name == KEY_PROPERTY:
            advice = "; `partition` names a partition" if name == HEADER_PROPERTY else ""
            raise ValueError(
                f"property {name!r} is reserved; choose one without leading '_'{advice}"
            )
    return stored


def _own_properties(message: Message) -> dict[str, str]:
    stored = own_properties(message.properties)
    if message.key is not None:
        stored[KEY_PROPERTY] = b64encode(key_bytes(message.key)).decode()
    return stored


def _check_text(name: object, value: object) -> None:
    if not (isinstance(name, str) and isinstance(value, str)):
        raise TypeError(f"properties must be str to str, not {name!r} to {value!r}")


@lru_cache(maxsize=1024)
def _reserved(type: int, version: int, header: bytes, vchannel: str, txn: str) -> bytes:
    properties = {
        "_t": str(int(type)),
        "_v": str(version),
        "_h": b64encode(header).decode(),
        "_vc": vchannel,
    }
    if txn:
        properties["_tx"] = txn
    return wire_message(b"", properties)
