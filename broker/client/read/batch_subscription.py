"""Whole batches of one pchannel, over `tidemark.v1.Log/Read`, with flow control by credit.

The server sends no more bytes than the client gave credit for. Credit for a batch is given after
the program took it, so that what waits in memory is bounded.

Next: broker/client/read/deliveries.py
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from broker.client.batch import MessageBatch
from broker.client.batch_mark import BatchMark
from broker.client.errors import OutOfRange, ProtocolBroken, ServerRefusal
from broker.client.net.connection import Conversation
from broker.client.net.waits import SILENT_S
from broker.client.read.broadcast_dedup import BroadcastDedup
from broker.client.read.deliveries import Deliveries
from broker.client.read.resuming_reader import SILENCE_S, WRITE_S, Held
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.named_cursor import WHOLE_TICK, ChannelPosition
from schemas.batches import Position, ReadAnswer, ReadBatch, scan_read_response
from schemas.encoding.frames import HEAD_BYTES, frame
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded
from schemas.wire import Malformed

READ = "/tidemark.v1.Log/Read"
CREDIT_BYTES = 8 * 1024 * 1024
"""What may be in flight to one reader or wait for its program."""

NOTHING = ReadBatch()


@dataclass(frozen=True, slots=True)
class BatchRange:
    """What to read of one pchannel, of all its vchannels for none named; `until_tick` 0: no end."""

    pchannel: PChannelName
    vchannels: tuple[str, ...]
    start: "Begin"
    only: "Only"
    collection: str | None = None
    until_tick: int = 0
    marked: bool = False
    """Whether batches are to be committed to a cursor; it costs as much as reading a small one."""

    @property
    def channels(self) -> tuple[str, ...]:
        """The vchannels to read, or the pchannel for all."""
        return self.vchannels or (self.pchannel,)


@dataclass(frozen=True, slots=True)
class Only:
    """Which messages: of these types, rows alone, of rows these columns; empty for all.

    `ignore_pause`: also while an operator has paused consumption.
    """

    types: tuple[int, ...] = ()
    rows: bool = False
    columns: tuple[str, ...] = ()
    ignore_pause: bool = False


@dataclass(frozen=True, slots=True)
class Begin:
    """An id or a tick to begin with; both 0: the first message there is.

    A tick from the future is refused, also beside `after`, which is a position to resume from.
    Where retention removed messages behind it, the read fails with OutOfRange or Unrecoverable
    instead of passing over the gap. `seen`: the (tick, id) up to which messages are dropped here,
    by vchannel; "" for every vchannel.
    """

    id: int = 0
    tick: int = 0
    after: Position | None = None
    seen: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class BatchSubscription:
    """One reader of one pchannel: what to ask of each stream, and what its answers mean."""

    path = READ
    quiet_s = SILENT_S

    def __init__(self, wanted: BatchRange) -> None:
        self.pchannel = wanted.pchannel
        self.bounded = bool(wanted.until_tick)
        self.done = False
        self._wanted = wanted
        self._position = wanted.start.after
        self.channels = wanted.channels
        self._from_id = MessageId(wanted.start.after.next_id if wanted.start.after else 0)
        self._passed = dict(wanted.start.seen)
        self._passed_tick = max([tick for tick, _ in self._passed.values()], default=0)
        """No vchannel was processed beyond it before this reader."""
        self._seen = self._passed.get("", (0, 0))
        """Tick and id of the newest message that was delivered."""
        self._dedup = BroadcastDedup()
        self._closed_tick = TimeTick(0)

    def accepts(self, first: bytes) -> bool:
        return not first  # an empty message accepts the stream

    def request(self) -> bytes:
        return frame(encoded(self._request()))

    async def deliver(
        self,
        stream: Conversation,
        frames: list[bytes],
        deliveries: Deliveries[MessageBatch],
        heard: Callable[[], None],
    ) -> None:
        # Per stream: each one is opened with the full credit.
        owed_bytes = 0
        while True:
            batches: list[MessageBatch] = []
            try:
                for each in frames:
                    owed_bytes += HEAD_BYTES + len(each)
                    batches += self._news(scan_read_response(each))
                    if self.done:
                        break
            except Malformed as error:
                raise ProtocolBroken(f"{self.pchannel}: {error}") from error
            finally:
                # In case of an error too: `_news` has counted these as delivered.
                await deliveries.put(batches)
            if frames:
                # After the put: the time that the program takes is no silence of the server.
                heard()
            if self.done:
                return
            # In quarters: fewer messages than one for each batch, while the server still has the
            # rest.
            if owed_bytes >= CREDIT_BYTES // 4:
                more = v1.ReadRequest(credit_bytes=owed_bytes)
                await stream.write(frame(encoded(more)), WRITE_S)
                owed_bytes = 0
            frames = await stream.read(SILENCE_S)

    def _request(self) -> v1.ReadRequest:
        wanted, at = self._wanted, self._position
        opening = v1.ReadOpen(
            vchannels=list(wanted.vchannels),
            until_tick=wanted.until_tick,
            types=list(wanted.only.types),
            rows=wanted.only.rows,
            columns=list(wanted.only.columns),
            ignore_pause=wanted.only.ignore_pause,
        )
        if at is not None:
            opening.position = v1.ReadPosition(
                next_id=at.next_id,
                time_tick=at.tick,
                open_id=at.open_id,
                inside=at.inside,
                purged_tick=at.purged,
            )
        if at is wanted.start.after:
            opening.from_id, opening.from_tick = wanted.start.id, wanted.start.tick
        return v1.ReadRequest(open=opening, credit_bytes=CREDIT_BYTES)

    def _news(self, answer: ReadAnswer) -> list[MessageBatch]:
        """What was not delivered yet; a new stream may repeat what came on the one before it."""
        if answer.position is not None:
            self._position = answer.position
        self.done = answer.end
        batch = None if answer.batch is None else self._unseen(answer.batch)
        batches = [] if batch is None else self._dedup.without_repeats(batch)
        before_tick = self._closed_tick
        self._closed_tick = TimeTick(max(before_tick, answer.closed_tick))
        if not batches and self._closed_tick > before_tick:
            batches = [NOTHING]
        # The new closed tick belongs to the last piece: the ones before it are not the end of it.
        closed = [*[before_tick] * len(batches), self._closed_tick][1:]
        made = [self._made(it, at) for it, at in zip(batches, closed, strict=True)]
        if made and made[-1].mark and answer.position is not None:
            at = answer.position
            self._from_id = max(self._from_id, MessageId(at.open_id or at.next_id))
            made[-1].mark.end = replace(made[-1].mark.end, from_id=self._from_id)
        return made

    def _made(self, batch: ReadBatch, closed_tick: TimeTick) -> MessageBatch:
        mark = BatchMark(self._end(batch, closed_tick)) if self._wanted.marked else None
        collection = self._wanted.collection
        return MessageBatch(batch, collection, closed_tick, self.channels, mark)

    def _end(self, batch: ReadBatch, closed_tick: TimeTick) -> ChannelPosition:
        """What is processed once the batch is."""
        tick, id = TimeTick(0), WHOLE_TICK
        if batch.end > batch.first:
            if batch.ids:
                # More of the transaction may follow.
                tick, id = TimeTick(batch.tick), MessageId(batch.ids[batch.end - 1])
            else:
                tick = TimeTick(batch.tick + batch.end - 1)
                # Without an open transaction the batch confirms itself.
                alone = batch.last_confirmed_id == batch.message_id
                from_id = batch.message_id + batch.end if alone else batch.last_confirmed_id
                self._from_id = max(self._from_id, MessageId(from_id))
        if closed_tick >= tick:
            return ChannelPosition(closed_tick, from_id=self._from_id)
        return ChannelPosition(tick, id, self._from_id)

    def _unseen(self, batch: ReadBatch) -> ReadBatch | None:
        tick, id = self._seen
        if batch.tick <= self._passed_tick:
            vchannel = MessageBatch(batch, None, TimeTick(0)).vchannel
            tick, id = max((tick, id), self._passed.get(vchannel, (0, 0)))
        # Messages of a transaction share one tick; all others have a tick each, which counts up.
        if batch.ids:
            seen = sum([(batch.tick, each) <= (tick, id) for each in batch.ids])
            last = batch.tick, batch.ids[-1]
        else:
            seen = tick - batch.tick + 1
            last = batch.tick + batch.end - 1, batch.message_id + batch.end - 1
        first = max(batch.first, seen)
        if first >= batch.end:
            return None
        self._seen = max(self._seen, last)
        return batch._replace(first=first) if first > batch.first else batch

    async def judge(self, error: ServerRefusal, held: Held) -> None:
        next_id = self._position.next_id if self._position else self._wanted.start.id
        offsets = await held()
        if offsets is None:
            return
        if 0 < next_id < offsets.first_id or next_id > offsets.next_id:
            raise OutOfRange(self.pchannel, next_id, offsets.first_id, offsets.next_id) from error
        raise error
