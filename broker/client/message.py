"""What a program appends and what it reads: messages, acknowledgements, batches.

It owns the spelling of the properties the client adds. It never talks to anything.
Next: broker/client/append/producer.py
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypedDict

from broker.client.durability import Durability
from broker.model.ids import BroadcastId, MessageId, TimeTick, VChannelName
from broker.model.message import SYSTEM_TYPES, MessageType
from schemas.properties.broadcast_header import read_broadcast_id
from schemas.properties.keys import BARRIER_TICK
from schemas.wire import message as wire_message

Key = bytes | str | int

KEY_PROPERTY = "tidemark.key"
TICK_MAX = (1 << 64) - 1
TICK_LOGICAL_BITS = 18

_BYTES = (bytes, bytearray, memoryview)


@dataclass(frozen=True, slots=True)
class Message:
    """One message to append.

    `key` chooses the shard of a collection and comes back to readers as bytes. `properties` are
    the program's own; names that begin with `_` are reserved. `header` is the protobuf header that
    Milvus's own message types have; as a plain log none is needed. `barrier_time_tick`: the tick
    that the message gets is larger; a tick from the future is refused with InvalidArgument.
    """

    payload: bytes
    key: Key | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    type: int = MessageType.INSERT
    version: int = 1
    header: bytes = b""
    barrier_time_tick: int = 0

    def __post_init__(self) -> None:
        """TypeError at once for a payload that is not bytes; ValueError for no tick."""
        check_payload(self.payload)
        if not 0 <= self.barrier_time_tick <= TICK_MAX:
            raise ValueError(f"barrier_time_tick {self.barrier_time_tick} is no time tick")


def check_messages(messages: Iterable[Message]) -> list[Message]:
    """All of them; TypeError for one that is no Message."""
    found = list(messages)
    for each in found:
        if not isinstance(each, Message):
            raise TypeError(f"a message must be a Message, not {type(each).__name__}")
    return found


class Kind(TypedDict, total=False):
    """What Milvus's own messages need; see `Message`."""

    type: int
    version: int
    header: bytes
    barrier_time_tick: int


class Appended(NamedTuple):
    """Where one message landed. With durability "fsync" it survives a power cut when this exists.

    With less it is what was asked for, and the message may be gone after a crash, with its id.
    """

    vchannel: VChannelName
    id: MessageId
    tick: TimeTick
    last_confirmed_id: MessageId
    durability: Durability = "fsync"


class Received(NamedTuple):
    """One message of a log. `id` grows along a vchannel, and so does `tick`.

    The messages of a transaction come together, where it was committed: all have the tick of the
    commit, and ids of their own, smaller than that.

    `collection` is the name that was read, None for a vchannel read by its own name. `tags` are
    all properties as stored, the reserved ones included.
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
        """The bytes of the key it was appended with."""
        text = self.tags.get(KEY_PROPERTY)
        return None if text is None else b64decode(text)

    @property
    def properties(self) -> dict[str, str]:
        """The program's own properties."""
        return {
            name: value
            for name, value in self.tags.items()
            if name[:1] != "_" and name != KEY_PROPERTY
        }

    @property
    def broadcast_id(self) -> BroadcastId | None:
        """Of a broadcast's copy, its id: the same on every vchannel; None for any other message.

        Rarely a copy is in a log twice; a reader shows the first one only. Who goes on with another
        reader remembers the ids of what it has applied.
        """
        text = self.tags.get("_bh")
        return None if text is None else BroadcastId(read_broadcast_id(text))

    @property
    def timestamp_ms(self) -> int:
        """Unix milliseconds of the tick."""
        return self.tick >> TICK_LOGICAL_BITS


class Batch(NamedTuple):
    """Messages of one vchannel in their order, as many as had arrived; perhaps none.

    `closed_tick`: nothing with a tick up to it is still to come on this vchannel.
    """

    vchannel: VChannelName
    collection: str | None
    messages: list[Received]
    closed_tick: TimeTick


def check_payload(payload: object) -> None:
    """TypeError when it is not bytes."""
    if not isinstance(payload, _BYTES):
        kind = type(payload).__name__
        mend = "; encode it first" if kind == "str" else ""
        raise TypeError(f"payload must be bytes, not {kind}{mend}")


def key_bytes(key: Key) -> bytes:
    """The bytes a reader gets back: UTF-8 of text, eight little-endian bytes of an integer."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    return key.to_bytes(8, "little", signed=True)


def encode(message: Message, vchannel: str, txn: str = "") -> bytes:
    """The `milvus.proto.messages.Message` to append; ValueError for a reserved property name.

    `txn`: the property that says which transaction it belongs to, if any.

    The reserved properties come last and in one order, so that the server, which remembers what it
    has parsed, finds the same bytes behind the payload of every plain message.
    """
    plain = not message.properties and message.key is None
    own = {} if plain else _own_properties(message)
    if message.barrier_time_tick:
        own |= BARRIER_TICK.entry(message.barrier_time_tick)
    reserved = _reserved(message.type, message.version, message.header, vchannel, txn)
    return wire_message(message.payload, own) + reserved


def unsendable(message: Message) -> str:
    """Why a program may not append it by itself; empty when it may."""
    if message.type in SYSTEM_TYPES:
        name = MessageType(message.type).name
        return f"{name} messages are not for programs to append; `txn` makes what it needs"
    return ""


def stored_properties(message: Message) -> dict[str, str]:
    """All properties of a message that names no vchannel; raises as `encode`."""
    header = b64encode(message.header).decode()
    reserved = {"_t": str(int(message.type)), "_v": str(message.version), "_h": header}
    return _own_properties(message) | reserved


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The program's own, checked: ValueError for a reserved name, TypeError for what is no text."""
    stored = dict(properties)
    for name, value in stored.items():
        _check_text(name, value)
        if name[:1] == "_" or name == KEY_PROPERTY:
            raise ValueError(f"property {name!r} is reserved; choose a name without leading '_'")
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
