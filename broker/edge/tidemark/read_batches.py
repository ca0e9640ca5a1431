"""Serve one Read stream of `tidemark.v1.Log`: batches out, as far as credit and window allow.

A batch is never cut: it is sent whole, with the range of messages that is meant, so a credit may be
exceeded by one batch. The reader's cursor is kept here.

Next: broker/edge/tidemark/slice_to_batch.py
Next: broker/client/read/batch_subscription.py
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import anyio

from actors import ActorDied, StaleTerm
from broker.codec.stored_headers import StoredHeaders
from broker.core.log.delivery import DeliveredItem
from broker.core.naming import belongs_to, is_control_channel
from broker.core.security.grants import Action
from broker.edge.rpc.arrow_library import load_arrow
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.middleware import Call, first_messages
from broker.edge.rpc.proxies import Proxy
from broker.edge.rpc.read_pace import ReadPace
from broker.edge.rpc.read_ticks import ReadTicks
from broker.edge.rpc.request_metadata import consumer_channel
from broker.edge.rpc.scanner_proxy import ScannerProxy
from broker.edge.rpc.stream_meters import StreamMeter
from broker.edge.tidemark.slice_to_batch import RowProjection, batch_of
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.message import (
    EXCLUSIVE_TYPES,
    SELF_CONTROLLED_TYPES,
    ClosedTick,
    Delivered,
    DeliveredInTxn,
)
from broker.model.position import (
    DeliverFilter,
    DeliverPolicy,
    FromAll,
    FromLatest,
    MessageTypes,
    ReadPosition,
    StartFrom,
    TimeTickGte,
)
from broker.model.record import Record, RecordSlice
from broker.node.directory_messages import Locate, Located, OpenScanner
from broker.node.queries.cut_channels import close_up_to
from broker.node.scanner_messages import Delivery
from schemas.arrow.columns import COLUMNS_MAX
from schemas.batches import STORED, Position, ReadBatch, read_batch, read_response
from schemas.encoding.frames import frame_head
from schemas.generated.tidemark import v1

CONSUME: Final = frozenset({Action.CONSUME})
VCHANNELS_MAX: Final = 16_384
HEADERS: Final = StoredHeaders()


async def serve_read(call: Call, directory: Proxy, limits: EdgeLimits, ticks: ReadTicks) -> None:
    """Serve one stream from its handshake to its end. `ticks` are shared by all streams.

    Raises Refused: INVALID_ARGUMENT for a bad header or request, else as `Locate` and `OpenScanner`
    refuse.
    """
    channel = consumer_channel(call.metadata)
    located = await directory.demand(Locate(channel.name, channel.term))
    # An empty answer says that this node serves the channel; a refusal would come instead.
    await call.stream.write_batch([b""])
    messages = await first_messages(call.stream, limits.idle_peer_s)
    if not messages:
        return
    requests = [await call.reader.read(it, v1.ReadRequest) for it in messages]
    wanted = requests[0].open
    if wanted is None:
        raise invalid_argument("the first request of a Read stream must be open")
    call.audited.request = wanted
    rows = _rows_wanted(wanted)
    if rows is not None:
        await load_arrow()
    for name in _vchannels(wanted, channel.name) or [channel.name]:
        await call.access.need_channel(CONSUME, name)
    opening, cursor = await _opening(wanted, located)
    credit_bytes = sum([it.credit_bytes for it in requests])
    stream = ReadStream(call, TimeTick(wanted.until_tick), credit_bytes, ticks)
    stream.rows = rows
    stream.pace = ReadPace(call, opening.vchannel or channel.name)
    stream.types_given = bool(wanted.types)
    with call.meters.consuming(channel.name) as meter, call.quotas.stream_of(call.identity):
        # Only within the limit: nobody would close the Scanner of a refused stream.
        opened = await directory.demand(opening)
        scanner = ScannerProxy(directory, opening, opened.scanner)
        stream.meter = meter
        await stream.run(scanner, cursor or opened.cursor, limits.consume_credit_bytes)


class ReadStream:
    """A reader after its first request."""

    def __init__(self, call: Call, until: TimeTick, credit_bytes: int, ticks: ReadTicks) -> None:
        self.meter = StreamMeter()
        self.rows: RowProjection | None = None
        self.pace: ReadPace | None = None
        self.types_given = False
        self._stream = call.stream
        self._reader = call.reader
        self._until = until
        self._credit_bytes = credit_bytes
        self._more_credit = anyio.Event()
        self._feeding = anyio.CancelScope()
        self._ticks = ticks

    async def run(self, scanner: ScannerProxy, cursor: ReadPosition, bytes_max: int) -> None:
        """Run until everything up to the end was sent, or the reader half-closes."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._take_credit)
                with self._feeding:
                    await self._feed(scanner, cursor, bytes_max)
                tasks.cancel_scope.cancel()
        finally:
            scanner.release()

    async def _take_credit(self) -> None:
        while frames := await self._stream.read_batch():
            for frame in frames:
                request = await self._reader.read(frame, v1.ReadRequest)
                self._credit_bytes += request.credit_bytes
            self._more_credit.set()
        self._feeding.cancel()

    async def _feed(self, scanner: ScannerProxy, cursor: ReadPosition, bytes_max: int) -> None:
        while True:
            # A new event before each wait: credit that comes after this line sets that event.
            while self._credit_bytes <= 0:
                self._more_credit = anyio.Event()
                await self._more_credit.wait()
            room = await self._stream.room()
            allowed = min(room, bytes_max, self._credit_bytes)
            delivery = await scanner.pull(cursor, allowed)
            cursor = delivery.cursor
            if self.pace is not None:
                await self.pace.wait(delivery.items)
            framed, end = self._framed(delivery)
            if framed:
                self._credit_bytes -= len(framed)
                await self._stream.write_framed(framed)
                self.meter.consumed_bytes += len(framed)
            if end:
                return

    def _framed(self, delivery: Delivery) -> tuple[bytes, bool]:
        """What to send of a delivery, and whether the stream ends with it.

        The last batch carries the reader's new position, up to which its channels are closed.
        """
        batches, beyond = self._batches(delivery.items)
        closed = delivery.tick.tick if delivery.tick else 0
        if delivery.items:
            closed = max(closed, delivery.cursor.tick)
        if beyond or (self._until and max(closed, delivery.cursor.tick) >= self._until):
            responses = [*map(read_response, batches)]
            responses.append(read_response(closed_tick=self._until, end=True))
            return _frames(responses), True
        if not delivery.items:
            return self._ticks.framed(closed, delivery.cursor) if closed else b"", False
        last = batches.pop() if batches else ()
        responses = [*map(read_response, batches)]
        responses.append(read_response(last, closed, _position(delivery.cursor)))
        return _frames(responses), False

    def _batches(self, items: Sequence[DeliveredItem]) -> tuple[list[Sequence[bytes]], bool]:
        """Each batch in parts, up to the end, and whether there is one beyond it."""
        found: list[Sequence[bytes]] = []
        members: list[DeliveredInTxn] = []
        for item in items:
            if self._is_beyond(item):
                return found, True
            match item:
                case RecordSlice():
                    # Bodies that came singly go first: a reader skips what arrives late.
                    found += (*transaction_batch(members), *self._slice(self._cut(item)))
                    members = []
                case DeliveredInTxn():
                    # A begin has no body; readers of rows get no single bodies.
                    if item.begins is None and self.rows is None:
                        members.append(item)
                case Delivered():  # a commit, which ends the members before it
                    found += transaction_batch(members)
                    members = []
                case ClosedTick():
                    continue  # sent with the last batch
        return found + transaction_batch(members), False

    def _slice(self, part: RecordSlice) -> list[Sequence[bytes]]:
        # No program wrote these; who needs them names their types.
        if not self.types_given and _of_the_log(part.record):
            return []
        batch = batch_of(part) if self.rows is None else self.rows.batch_of(part)
        return [] if batch is None else [read_batch(batch)]

    def _is_beyond(self, item: Delivered | ClosedTick | RecordSlice) -> bool:
        if not self._until:
            return False
        first = item.first_tick if isinstance(item, RecordSlice) else item.tick
        return first > self._until

    def _cut(self, part: RecordSlice) -> RecordSlice:
        """The slice without what is beyond the end."""
        if not self._until or part.last_tick <= self._until:
            return part
        return replace(part, end=self._until - part.record.base_tick + 1)


async def _opening(
    wanted: v1.ReadOpen, located: Located
) -> tuple[OpenScanner, ReadPosition | None]:
    """The request that opens the Scanner, and the cursor to begin with if the reader gave one."""
    channel = located.channel
    vchannels = _vchannels(wanted, channel.name)
    filters: list[DeliverFilter] = []
    policy: DeliverPolicy = FromAll()
    cursor: ReadPosition | None = None
    for tick in (wanted.from_tick, wanted.until_tick):
        # Up to an open tick messages may still land, which the search would not see.
        if tick:
            await _close(located, TimeTick(tick))
    if wanted.position is not None:
        cursor = _cursor(wanted.position)
    elif wanted.from_tick:
        policy = StartFrom(await located.view.seek(TimeTick(wanted.from_tick)))
        filters.append(TimeTickGte(TimeTick(wanted.from_tick)))
    elif wanted.from_id < 0:
        raise invalid_argument(f"message id {wanted.from_id} is negative; ids begin at 0")
    elif wanted.from_id:
        policy = StartFrom(MessageId(wanted.from_id))
    elif wanted.latest:
        policy = FromLatest()
    if wanted.types:
        filters.append(MessageTypes(frozenset(int(it) for it in wanted.types)))
    only = vchannels[0] if len(vchannels) == 1 else ""
    among = frozenset(vchannels) if len(vchannels) > 1 else None
    opening = OpenScanner(
        channel.name,
        channel.term,
        only,
        policy,
        tuple(filters),
        ignores_pause=wanted.ignore_pause,
        among=among,
        whole=True,
    )
    return opening, cursor


def _vchannels(wanted: v1.ReadOpen, pchannel: PChannelName) -> list[str]:
    names = list(dict.fromkeys(wanted.vchannels))
    if len(names) > VCHANNELS_MAX:
        raise invalid_argument(
            f"{len(names)} vchannels are named, at most {VCHANNELS_MAX} can be read together"
        )
    for name in names:
        if not name or not belongs_to(name, pchannel):
            raise invalid_argument(
                f"vchannel {name!r} is not on pchannel {pchannel!r} of this stream"
            )
    return names


async def _close(located: Located, tick: TimeTick) -> None:
    try:
        await close_up_to(located, tick)
    except (ActorDied, StaleTerm) as error:
        raise Refused(StreamingCode.ON_SHUTDOWN, f"{error}; locate the channel again") from error


def _cursor(position: v1.ReadPosition) -> ReadPosition:
    if position.next_id < 1 or position.inside < 0 or position.open_id < 0:
        raise invalid_argument(f"{position} is not a position that a Read stream gave")
    open_id = MessageId(position.open_id) if position.open_id else None
    if open_id is not None and open_id > position.next_id:
        raise invalid_argument(f"{position} is not a position that a Read stream gave")
    # It takes what is left as before: what was purged before it began is not missing.
    purged = TimeTick(0 if open_id is None else position.purged_tick)
    return ReadPosition(
        MessageId(position.next_id),
        TimeTick(position.time_tick),
        open_id,
        position.inside,
        partial=bool(purged),
        purged=purged,
    )


def _position(cursor: ReadPosition) -> Position:
    purged = cursor.purged if cursor.partial else 0
    return Position(cursor.next_id, cursor.tick, cursor.open_id or 0, cursor.inside, purged)


def _rows_wanted(wanted: v1.ReadOpen) -> RowProjection | None:
    if wanted.columns and not wanted.rows:
        raise invalid_argument("columns are named, but rows is not set; set rows")
    if len(wanted.columns) > COLUMNS_MAX:
        raise invalid_argument(
            f"{len(wanted.columns)} columns are named; a collection has at most {COLUMNS_MAX}"
        )
    return RowProjection(frozenset(wanted.columns)) if wanted.rows else None


def transaction_batch(bodies: Sequence[DeliveredInTxn]) -> list[Sequence[bytes]]:
    """The bodies of a transaction as one batch, all at its commit's tick; [] without bodies."""
    if not bodies:
        return []
    batch = ReadBatch(
        sizes=tuple([len(it.body) for it in bodies]),
        message_id=bodies[0].id,
        tick=bodies[0].tick,
        last_confirmed_id=bodies[0].last_confirmed_id,
        form=STORED,
        end=len(bodies),
        ids=tuple([it.id for it in bodies]),
        body=b"".join([it.body for it in bodies]),
    )
    return [read_batch(batch)]


def _frames(messages: Sequence[Sequence[bytes]]) -> bytes:
    """Frame messages that are in parts; the only copy made of their bodies."""
    parts: list[bytes] = []
    for message in messages:
        parts.append(frame_head(sum(map(len, message))))
        parts += message
    return b"".join(parts)


def _of_the_log(record: Record) -> bool:
    """Whether the log wrote it, or reads it to know its collections."""
    if record.kind in SELF_CONTROLLED_TYPES:
        return True
    # Of few types, so that the bodies of rows are not searched.
    if record.kind not in EXCLUSIVE_TYPES or is_control_channel(record.vchannel):
        return False
    return HEADERS.announced(record.body)
