"""Streams on the channels of a Tidemark broker, over its client.

Places are (tick, id): messages of a transaction lie at the tick of their commit, behind messages
with larger ids.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import anyio

from broker.client import Client, MessageBatch
from broker.client.errors import (
    BadTarget,
    DeadlineExceeded,
    NoSuchCollection,
    NoSuchVChannel,
    OutcomeUnknown,
    OutOfRange,
    TidemarkError,
    UnknownDefinition,
)
from broker.client.read.batch_start import BatchStart
from broker.client.read.row_scanner import RowForm, schema_of_targets
from broker.core.naming import collection_id_of, pchannel_of
from broker.model.cut import Cut
from broker.model.ids import CollectionId, MessageId, TimeTick
from broker.model.message import MessageType
from broker.msgstream.backends.stream_backend import Feed, FeedStart, FeedStep, Lot, RowShaper
from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.stream_errors import BadPosition, ChannelDestroyed
from schemas.arrow.columns import arrow

if TYPE_CHECKING:
    import pyarrow as pa

CHECK_S, ASK_S = 1.0, 0.25
BATCH_MESSAGES: Final = 16_384
BATCH_BYTES: Final = 7 << 20
"""Below what a broker accepts, so that keys and properties have room."""
TYPES: Final = (
    MessageType.INSERT,
    MessageType.DELETE,
    MessageType.CREATE_COLLECTION,
    MessageType.DROP_COLLECTION,
    MessageType.CREATE_PARTITION,
    MessageType.DROP_PARTITION,
    MsgType.TIME_TICK,
)
"""What a stream reads: its own messages, those that Milvus's clients send, definitions, and the
time ticks of the master, which have a type of their own in the log."""
_PLACE: Final = 16
_ID_MAX: Final = (1 << 63) - 1


class LogBackend:
    """See StreamBackend. A channel is a vchannel; a collection stands for all of its vchannels."""

    def __init__(self, log: Client) -> None:
        self._log = log
        self._collections: set[CollectionId] = set()
        """Those that exist, or have since they were resolved."""

    async def resolve(self, names: Sequence[str]) -> list[str]:
        """See StreamBackend. Raises NoSuchCollection, NoSuchVChannel, or what a master that cannot
        be asked raises: a vchannel of no collection, taken for one, would look dropped later."""
        found = await self._log.collections.resolve(names)
        channels: list[str] = [vchannel for name in names for vchannel in found[name]]
        for id in {collection_id_of(it) for it in channels}:
            # A vchannel that a client of Milvus has made need not be of a collection.
            if id is not None and await _is_defined(self._log, id):
                self._collections.add(id)
        return channels

    async def send(self, channel: str, payloads: Sequence[object], deadline_s: float) -> None:
        """See StreamBackend: synced to disk, in batches that are stored whole; the first error."""
        first, *more = _batches(payloads)
        until_s = anyio.current_time() + deadline_s
        await self._log.append_batch(channel, first, deadline_s=deadline_s)
        for batch in more:
            left_s = until_s - anyio.current_time()
            if left_s <= 0:
                raise DeadlineExceeded(
                    f"not all messages for {channel} were sent in {deadline_s} s"
                )
            await self._log.append_batch(channel, batch, deadline_s=left_s)

    async def send_to_all(
        self, channels: Sequence[str], payloads: Sequence[object], deadline_s: float
    ) -> None:
        """See StreamBackend: one staged batch, which is committed on all channels or on none.

        OutcomeUnknown at the deadline: it took effect on all of them, or on none.
        """
        batches = _batches(payloads)
        try:
            with anyio.fail_after(deadline_s):
                async with self._log.staged(deadline_s=deadline_s) as out:
                    for channel in channels:
                        for batch in batches:
                            await out.append_batch(channel, batch)
        except TimeoutError:
            raise OutcomeUnknown(
                f"the broadcast was not committed within {deadline_s} s; every channel has it or"
                " none: read one of them to find out"
            ) from None

    def feeds(self, starts: Mapping[str, FeedStart], *, apart: bool) -> list[Feed]:
        """See StreamBackend; one stream for each pchannel, unless `apart`."""
        groups: dict[str, dict[str, FeedStart]] = {}
        for name, start in starts.items():
            groups.setdefault(name if apart else pchannel_of(name), {})[name] = start
        return [LogFeed(self._log, name, some, self._collections) for name, some in groups.items()]

    def tick_of(self, place: bytes) -> int:
        """See StreamBackend."""
        if len(place) != _PLACE:
            raise BadPosition(f"{place!r} is no place in a Tidemark log")
        return int.from_bytes(place[:8], "big")

    def end_of_tick(self, tick: int) -> bytes:
        """See StreamBackend."""
        return place_of(tick, _ID_MAX)

    async def cut(self, channels: Iterable[str], tick: int) -> Cut:
        """See StreamBackend; one request for each channel."""
        ends = {name: await self._log.offsets.seek(name, tick + 1) for name in channels}
        return Cut(TimeTick(tick), {name: MessageId(it) for name, it in ends.items()})

    async def row_shaper(self, channels: Sequence[str]) -> RowShaper:
        """See StreamBackend."""
        form = RowForm(await schema_of_targets(self._log.collections, channels), None)

        def shape(parts: Sequence[tuple[Lot, int, int]]) -> "pa.Table":
            shaped = []
            for lot, first, stop in parts:
                if not (isinstance(lot, BatchLot) and lot.has_rows):
                    raise BadTarget(
                        f"messages of {lot.channel} are not Arrow rows: take their msgs"
                    )
                part = lot.sliced(first, stop)
                shaped.append(form.shaped([part], [part.rows()]))  # type: ignore[list-item]
            return arrow().Table.from_batches(shaped, schema=form.schema)

        return shape


class LogFeed:
    """See Feed. Nothing waits for an acknowledgement: the positions of packs are the checkpoints.

    The drop of a collection is on the control channel only, so every `CHECK_S` the feed asks
    whether its channels still exist.
    """

    def __init__(
        self,
        log: Client,
        name: str,
        starts: Mapping[str, FeedStart],
        collections: Collection[CollectionId],
    ) -> None:
        self.name = name
        self.channels = tuple(starts)
        self._log = log
        self._first = {name: (it.after_tick, it.at) for name, it in starts.items()}
        after = min(_start_tick(it) for it in starts.values())
        start: BatchStart = ("tick", after) if after else "all"
        self._scanner = log.read_batches(list(starts), start=start, types=TYPES)
        self._check_s = anyio.current_time() + CHECK_S
        # The vchannels of one collection go together.
        ids = {collection_id_of(it): it for it in starts}
        self._asked = {id: it for id, it in ids.items() if id in collections}
        self._gone: tuple[str, int] | None = None

    async def next(self) -> FeedStep:
        """See Feed."""
        if self._gone is None and anyio.current_time() >= self._check_s:
            # Reading goes on while there is nobody to ask.
            with anyio.move_on_after(ASK_S):
                await self._check()
            self._check_s = anyio.current_time() + CHECK_S
        try:
            batch = await anext(self._scanner)
        except (OutOfRange, NoSuchVChannel, NoSuchCollection):
            # A dropped collection is not found any more, or its space is given back meanwhile.
            await self._check()
            if self._gone is None:
                raise
            raise ChannelDestroyed(self._gone[0]) from None
        closed = int(batch.plain_closed_tick)
        destroyed = self._gone[0] if self._gone is not None and closed >= self._gone[1] else ""
        channel = batch.vchannel
        if not len(batch) or channel not in self._first:
            return FeedStep(None, closed, destroyed)
        lot = BatchLot(batch, self._skipped(channel, batch), len(batch))
        return FeedStep(lot if len(lot) else None, closed, destroyed)

    async def _check(self) -> None:
        """Note a channel that is gone, and a tick up to which all that it had is in the log."""
        for id, name in self._asked.items():
            if id is not None and not await _exists(self._log, id):
                pchannel = pchannel_of(name)
                held = await self._log.offsets.describe([pchannel])
                self._gone = name, int(held[pchannel].closed_tick)
                return

    async def close(self) -> None:
        """See Feed."""
        await self._scanner.close()

    def _skipped(self, channel: str, batch: MessageBatch) -> int:
        """How many messages lie before the start of their channel: others may start earlier."""
        after, at = self._first[channel]
        ticks, ids = batch.ticks, batch.ids
        if ticks[0] > after and (not at or place_of(ticks[0], ids[0]) >= at):
            return 0
        for index, (tick, id) in enumerate(zip(ticks, ids, strict=True)):
            if tick > after and place_of(tick, id) >= at:
                return index
        return len(ticks)


class BatchLot:
    """Messages [first, stop) of a batch."""

    __slots__ = ("_batch", "_first", "_stop", "channel")

    def __init__(self, batch: MessageBatch, first: int, stop: int) -> None:
        self.channel = batch.vchannel
        self._batch = batch
        self._first = first
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._first

    def sliced(self, first: int, stop: int) -> "BatchLot":
        """A part of it."""
        return BatchLot(self._batch, self._first + first, self._first + stop)

    @property
    def vchannel(self) -> str:
        """The channel, as a batch calls it."""
        return self.channel

    @property
    def ids(self) -> Sequence[int]:
        """The id of each message."""
        return self._batch.ids[self._first : self._stop]

    @property
    def ticks(self) -> Sequence[int]:
        """See Lot."""
        return self._batch.ticks[self._first : self._stop]

    @property
    def nbytes(self) -> int:
        """See Lot."""
        return self._batch.nbytes

    @property
    def payloads(self) -> Sequence[object]:
        """See Lot."""
        return self._batch.payloads[self._first : self._stop]

    @property
    def has_rows(self) -> bool:
        """See Lot."""
        return self._batch.has_rows

    def rows(self) -> "pa.RecordBatch":
        """The Arrow rows."""
        rows = self._batch.rows()
        return rows if len(self) == len(rows) else rows.slice(self._first, len(self))

    def place(self, index: int) -> bytes:
        """See Lot."""
        at = self._first + index
        return place_of(self._batch.ticks[at], self._batch.ids[at])


def place_of(tick: int, id: int) -> bytes:
    """The place of a message in its vchannel."""
    return tick.to_bytes(8, "big") + id.to_bytes(8, "big")


async def _exists(log: Client, id: CollectionId) -> bool:
    """Whether a collection that had this id still does; yes, as long as nobody can be asked."""
    try:
        return await _is_defined(log, id)
    except TidemarkError as error:
        if not error.retriable:
            raise
    return True


async def _is_defined(log: Client, id: CollectionId) -> bool:
    """Whether a collection has this id."""
    try:
        await log.master.describe_collection(collection_id=id)
    except UnknownDefinition:
        return False
    return True


def _start_tick(start: FeedStart) -> int:
    """The first tick to read; 0: from the first message on."""
    by_place = int.from_bytes(start.at[:8], "big") if start.at else 0
    return max(by_place, start.after_tick + 1 if start.after_tick else 0)


def _batches(payloads: Sequence[object]) -> list[list[bytes]]:
    """The payloads in order, in batches that the broker accepts."""
    assert set(map(type, payloads)) == {bytes}, "a Tidemark log carries bytes: use ProtoUDFactory"
    bodies = cast("Sequence[bytes]", payloads)
    if len(bodies) <= BATCH_MESSAGES and sum(map(len, bodies)) <= BATCH_BYTES:
        return [list(bodies)]
    found: list[list[bytes]] = []
    size = BATCH_BYTES + 1
    for payload in bodies:
        size += len(payload)
        if size > BATCH_BYTES or len(found[-1]) >= BATCH_MESSAGES:
            found.append([])
            size = len(payload)
        found[-1].append(payload)
    return found
