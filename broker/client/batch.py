"""Batches, as results of appends and as read; a body is cut into messages when asked for."""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from broker.client.batch_mark import BatchMark
from broker.client.batch_tick import BatchTick
from broker.client.durability import Durability
from broker.client.errors import ProtocolBroken
from broker.client.message import (
    HEADER_PROPERTY,
    KEY_PROPERTY,
    Received,
    own_tags,
    partition_of,
)
from broker.model.batch import BatchKeys
from broker.model.ids import MessageId, PartitionId, TimeTick, VChannelName
from schemas.arrow.ipc import BadArrow
from schemas.arrow.json_rows import rows_as_json
from schemas.arrow.rows import decode_rows
from schemas.batches import ARROW_ROWS, STORED, ReadBatch
from schemas.encoding.entries import read_entry
from schemas.encoding.fields import fields
from schemas.encoding.varint import Malformed
from schemas.packing import BadPacking, unpack
from schemas.properties.keys import ROW_KEY, BadProperty

if TYPE_CHECKING:
    import pyarrow as pa

BODY_BYTES_MAX = 1 << 30
"""Of an unpacked body: a larger size in a header is an error, and not memory to allocate."""


class AppendedBatch(NamedTuple):
    """An acknowledged batch: message i has id `id + i` and tick `tick + i`.

    `last_confirmed_id` is that of the first message. With durability "fsync" the batch survives
    power cuts; see `Durability` for less.
    """

    vchannel: VChannelName
    id: MessageId
    tick: TimeTick
    last_confirmed_id: MessageId
    messages: int
    durability: Durability = "fsync"


class MessageBatch:
    """Messages of one vchannel in their order; empty when only the closed tick has moved.

    `closed_tick`: no message with a tick up to it is still to come from this pchannel. Payloads,
    keys and properties are cut out of the body when first asked for. Ids and ticks are consecutive,
    except in a transaction, whose messages share one tick and have their own ids. `mark` is what
    `Cursor.commit` needs.
    """

    def __init__(
        self,
        came: ReadBatch,
        collection: str | None,
        closed_tick: TimeTick,
        channels: tuple[str, ...] = (),
        mark: BatchMark | None = None,
    ) -> None:
        """`channels`: those of which `closed_tick` says something."""
        self.collection = collection
        self.plain_closed_tick = closed_tick
        self.mark = mark
        self._channels = channels
        self._came = came

    def __len__(self) -> int:
        return self._came.end - self._came.first

    @property
    def closed_tick(self) -> BatchTick:
        """No message with a tick up to it is still to come on the channels it knows."""
        return BatchTick(self.plain_closed_tick, self._channels)

    @property
    def nbytes(self) -> int:
        """The size of the body as it was received."""
        return len(self._came.body)

    @property
    def ids(self) -> Sequence[int]:
        """The id of each message."""
        came = self._came
        if came.ids:
            return came.ids[came.first : came.end]
        return range(came.message_id + came.first, came.message_id + came.end)

    @property
    def ticks(self) -> Sequence[int]:
        """The time tick of each message."""
        came = self._came
        if came.ids:
            return (came.tick,) * len(self)
        return range(came.tick + came.first, came.tick + came.end)

    @cached_property
    def payloads(self) -> list[bytes]:
        """The payload of each message. Raises ProtocolBroken when the body is malformed."""
        if self._came.form == STORED:
            return [payload for payload, _ in self._stored]
        if self.has_rows:
            return self._as_json()
        return self._pieces

    @cached_property
    def tags(self) -> Sequence[Mapping[str, str]]:
        """All properties of each message as stored, with the reserved ones."""
        if self._came.form == STORED:
            return self._stored_tags
        shared = _shared(self._came.properties)
        if not self._came.key_sizes:
            return (shared,) * len(self)
        return [
            shared if key is None else {**shared, KEY_PROPERTY: ROW_KEY.encode(key)}
            for key in self.keys
        ]

    @cached_property
    def keys(self) -> list[bytes | None]:
        """The key of each message as bytes; None for a message without one."""
        came = self._came
        if came.form == STORED:
            return [_key(tags) for tags in self.tags]
        if self.has_rows:
            # The key of a row is one of its columns.
            return [None] * len(self)
        keys = BatchKeys(came.key_sizes, came.keys).split(len(came.sizes))
        return keys[came.first : came.end]

    @property
    def properties(self) -> Sequence[Mapping[str, str]]:
        """The program's own properties of each message."""
        if self._came.form == STORED:
            return [own_tags(tags) for tags in self._stored_tags]
        return (own_tags(_shared(self._came.properties)),) * len(self)

    @property
    def types(self) -> Sequence[int]:
        """The message type of each message."""
        if self._came.form == STORED:
            return [int(tags.get("_t", "0")) for tags in self._stored_tags]
        return (self._came.type,) * len(self)

    @property
    def partition_ids(self) -> Sequence[PartitionId | None]:
        """The partition of each message, as `Received.partition_id`.

        Raises ProtocolBroken for a malformed header.
        """
        try:
            if self._came.form == STORED:
                found = zip(self.types, self._stored_tags, strict=True)
                return [partition_of(kind, tags.get(HEADER_PROPERTY, "")) for kind, tags in found]
            shared = _shared(self._came.properties).get(HEADER_PROPERTY, "")
            return (partition_of(self._came.type, shared),) * len(self)
        except ValueError as error:
            raise ProtocolBroken(f"the header of a message: {error}") from error

    @property
    def vchannels(self) -> Sequence[str]:
        """The vchannel of each message; "" for one that concerns every vchannel."""
        if self._came.vchannel or self._came.form != STORED:
            return (self._came.vchannel,) * len(self)
        return [tags.get("_vc", "") for tags in self._stored_tags]

    @property
    def _stored_tags(self) -> Sequence[Mapping[str, str]]:
        return [tags for _, tags in self._stored]

    @property
    def has_rows(self) -> bool:
        """Whether the messages are Arrow rows; each payload is then a JSON object."""
        return self._came.form == ARROW_ROWS

    def rows(self, names: Sequence[str] | None = None) -> "pa.RecordBatch":
        """The rows, with those columns of `names` (None: all) that they have."""
        assert self.has_rows, "these messages are not Arrow rows; check has_rows first"
        try:
            return decode_rows(self._came.body, names).slice(self._came.first, len(self))
        except BadArrow as error:
            raise ProtocolBroken(str(error)) from error

    @property
    def vchannel(self) -> str:
        """The vchannel of the messages; "" when they concern every vchannel."""
        if self._came.vchannel or not len(self) or self._came.form != STORED:
            return self._came.vchannel
        return self.tags[0].get("_vc", "")

    @property
    def messages(self) -> list[Received]:
        """Each message as `Client.read` yields it."""
        columns = (self.payloads, self.ids, self.ticks, self.vchannels, self.types, self.tags)
        return [
            Received(payload, MessageId(id), TimeTick(tick), vchannel, self.collection, kind, tags)
            for payload, id, tick, vchannel, kind, tags in zip(*columns, strict=True)
        ]

    def _as_json(self) -> list[bytes]:
        try:
            return rows_as_json(self._came.body, self._came.first, self._came.end)
        except BadArrow as error:
            raise ProtocolBroken(str(error)) from error

    @cached_property
    def _pieces(self) -> list[bytes]:
        came = self._came
        body = came.body
        if came.codec:
            body = _unpacked(came)
        elif sum(came.sizes) != len(body):
            raise ProtocolBroken(
                f"a batch has {len(body)} bytes, but its messages have {sum(came.sizes)}"
            )
        ends = list(accumulate(came.sizes, initial=0))[came.first : came.end + 1]
        return [body[start:end] for start, end in pairwise(ends)]

    @cached_property
    def _stored(self) -> list[tuple[bytes, dict[str, str]]]:
        try:
            return [_read_stored(piece) for piece in self._pieces]
        except Malformed as error:
            raise ProtocolBroken(f"a stored message: {error}") from error


def _unpacked(came: ReadBatch) -> bytes:
    size = sum(came.sizes)
    # Before anything is unpacked: a few bytes may claim any size.
    if size > BODY_BYTES_MAX:
        raise ProtocolBroken(
            f"a batch says it has {size} bytes unpacked; at most {BODY_BYTES_MAX} are accepted"
        )
    try:
        return unpack(came.codec, came.body, size)
    except BadPacking as error:
        raise ProtocolBroken(str(error)) from error


def _read_stored(stored: bytes) -> tuple[bytes, dict[str, str]]:
    payload, tags = b"", {}
    for tag, first, stop in fields(stored, 0, len(stored)):
        # Fields 2 and 3 of Milvus's ImmutableMessage, the form in which single messages are stored.
        if tag == 0x12:
            payload = stored[first:stop]
        elif tag == 0x1A:
            name, value = read_entry(stored[first:stop])
            tags[name] = value
    return payload, tags


@lru_cache(maxsize=256)
def _shared(properties: bytes) -> Mapping[str, str]:
    """The decoded properties. Cached, so one mapping is shared by many messages: do not change."""
    try:
        entries = fields(properties, 0, len(properties))
        return dict([read_entry(properties[first:stop]) for _, first, stop in entries])
    except Malformed as error:
        raise ProtocolBroken(f"shared properties: {error}") from error


def _key(tags: Mapping[str, str]) -> bytes | None:
    try:
        return ROW_KEY.read(tags)
    except BadProperty as error:
        raise ProtocolBroken(str(error)) from error
