"""One reader of batches: keeps a Read stream open and goes on where the last one ended.

It owns the stream's reopening, the credit it gives, and the place where another stream begins. It
gives credit for what its taker has taken, so what is in memory is bounded by that.
Next: broker/client/batch.py
"""

from dataclasses import dataclass

import anyio

from broker.client.batch import MessageBatch
from broker.client.cluster.offsets import Offsets
from broker.client.errors import (
    BadTarget,
    OutOfRange,
    ProtocolBroken,
    ServerRefusal,
    TidemarkError,
)
from broker.client.net.assignment_table import Location
from broker.client.net.backoff import FOLLOWED_MS_MAX, Backoff
from broker.client.net.connection import Connection, Conversation
from broker.client.net.milvus_frames import consumer_metadata
from broker.client.net.network import Network
from broker.client.net.retry_rules import ends_reader, is_wrong_node
from broker.client.read.first_copies import FirstCopies
from broker.client.read.lane import Lane
from broker.model.ids import PChannelName, TimeTick
from schemas.batches import Position, ReadAnswer, ReadBatch, scan_read_response
from schemas.encoding.frames import HEAD_BYTES, frame
from schemas.generated.tidemark import v1
from schemas.wire import Malformed

READ = "/tidemark.v1.Log/Read"
CREDIT_BYTES = 8 * 1024 * 1024
"""What may be on its way to one reader or wait for its taker."""
SILENCE_S = 30.0
"""An idle server still announces a tick every 200 ms; without any the stream is taken for dead."""
WRITE_S = 5.0

NOTHING = ReadBatch()


@dataclass(frozen=True, slots=True)
class BatchRange:
    """What to read of one pchannel. `start`: one of the fields of a ReadOpen, or nothing for all.

    `until_tick` 0: for ever.
    """

    pchannel: PChannelName
    vchannels: tuple[str, ...]
    start: "Begin"
    only: "Only"
    collection: str | None = None
    until_tick: int = 0


@dataclass(frozen=True, slots=True)
class Only:
    """Which messages: of these types, rows alone, of rows these columns; empty for all."""

    types: tuple[int, ...] = ()
    rows: bool = False
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Begin:
    """An id or a tick to begin with; both 0: the first message there is.

    `after`: the reader goes on behind there, as behind its own position, so that what retention
    took of the rest is an error and not passed over.
    """

    id: int = 0
    tick: int = 0
    after: Position | None = None


class BatchSubscription:
    """Use once: `run` hands over batches until the end of a bounded read, or for ever."""

    def __init__(self, network: Network, offsets: Offsets, wanted: BatchRange) -> None:
        self._network = network
        self._offsets = offsets
        self._wanted = wanted
        self._position = wanted.start.after
        self._seen = (0, 0)
        """Tick and id of the newest message that was handed over."""
        self._copies = FirstCopies()
        self._done = False
        self._backoff = Backoff(max_ms=FOLLOWED_MS_MAX)
        self._heard_s = 0.0
        self._closed_tick = TimeTick(0)

    async def run(self, lane: Lane[MessageBatch]) -> None:
        """Hand every batch over once and in order, over as many streams as it takes.

        Raises OutOfRange when retention was faster than the reader, and what the server refuses
        for good. Everything else is tried again: for ever, but for a bounded read only until
        nothing has come for `give_up_s`.
        """
        self._heard_s = anyio.current_time()
        while not self._done:
            location = None
            try:
                location = await self._network.assignments.locate(
                    self._wanted.pchannel, deadline_s=self._network.open_s
                )
                await self._read(location, lane)
            except (BadTarget, ProtocolBroken):
                raise
            except ServerRefusal as error:
                if location is not None and is_wrong_node(error.code):
                    self._network.assignments.report(location.channel, error)
                if ends_reader(error.code):
                    await self._judge(error)
                self._give_up_late(error)
            except TidemarkError as error:
                self._give_up_late(error)
            if not self._done:
                await self._pause(location)

    async def _read(self, location: Location, lane: Lane[MessageBatch]) -> None:
        """One stream, from its opening to its end."""
        connection = self._network.connection(location.address)
        metadata = consumer_metadata(location.channel, location.node)
        open_s = self._network.open_s
        async with connection.converse(READ, metadata, deadline_s=open_s) as stream:
            first, *frames = await stream.read(open_s)
            if first:
                raise ProtocolBroken(f"{connection.address}: a Read stream began with no empty one")
            await stream.write(frame(bytes(self._request())), WRITE_S)
            await self._hand_over(connection, stream, frames, lane)

    async def _hand_over(
        self,
        connection: Connection,
        stream: Conversation,
        frames: list[bytes],
        lane: Lane[MessageBatch],
    ) -> None:
        owed_bytes = 0
        while True:
            batches: list[MessageBatch] = []
            try:
                for each in frames:
                    owed_bytes += HEAD_BYTES + len(each)
                    batches += self._news(scan_read_response(each))
                    if self._done:
                        break
            except Malformed as error:
                raise ProtocolBroken(f"{connection.address}: {error}") from error
            finally:
                await lane.give(batches)
            if self._done:
                return
            if owed_bytes >= CREDIT_BYTES // 4:
                more = v1.ReadRequest(credit_bytes=owed_bytes)
                await stream.write(frame(bytes(more)), WRITE_S)
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
        )
        if at is not None:
            opening.position = v1.ReadPosition(
                next_id=at.next_id, time_tick=at.tick, open_id=at.open_id, inside=at.inside
            )
        else:
            opening.from_id, opening.from_tick = wanted.start.id, wanted.start.tick
        return v1.ReadRequest(open=opening, credit_bytes=CREDIT_BYTES)

    def _news(self, answer: ReadAnswer) -> list[MessageBatch]:
        """What is new to the taker; what came before this stream may come once more."""
        self._heard_s = anyio.current_time()
        self._backoff = self._backoff.succeeded()
        if answer.position is not None:
            self._position = answer.position
        self._done = answer.end
        batch = None if answer.batch is None else self._unseen(answer.batch)
        batches = [] if batch is None else self._copies.of(batch)
        before_tick = self._closed_tick
        self._closed_tick = TimeTick(max(before_tick, answer.closed_tick))
        if not batches and self._closed_tick > before_tick:
            batches = [NOTHING]
        closed = [*[before_tick] * len(batches), self._closed_tick][1:]  # behind the last piece
        collection = self._wanted.collection
        return [MessageBatch(it, collection, at) for it, at in zip(batches, closed, strict=True)]

    def _unseen(self, batch: ReadBatch) -> ReadBatch | None:
        tick, id = self._seen
        if batch.ids:
            seen = sum([(batch.tick, each) <= (tick, id) for each in batch.ids])
            last = batch.tick, batch.ids[-1]
        else:
            seen = tick - batch.tick + 1
            last = batch.tick + batch.end - 1, batch.message_id + batch.end - 1
        first = max(batch.first, seen)
        if first >= batch.end:
            return None
        self._seen = last
        return batch._replace(first=first) if first > batch.first else batch

    async def _judge(self, error: ServerRefusal) -> None:
        """Raises OutOfRange when retention was faster than the reader, else what was refused."""
        name = self._wanted.pchannel
        next_id = self._position.next_id if self._position else self._wanted.start.id
        try:
            held = (await self._offsets.describe([name]))[name]
        except TidemarkError as unanswered:
            if unanswered.retriable:
                return  # the next stream will be refused alike, and the question asked again
            raise
        if 0 < next_id < held.first_id or next_id > held.next_id:
            raise OutOfRange(name, next_id, held.first_id, held.next_id) from error
        raise error

    def _give_up_late(self, error: TidemarkError) -> None:
        silent_s = anyio.current_time() - self._heard_s
        if self._wanted.until_tick and silent_s > self._network.give_up_s:
            raise error

    async def _pause(self, location: Location | None) -> None:
        self._backoff = self._backoff.failed()
        if location is not None:
            delay_s = self._backoff.delay_s(self._network.spread.random())
            await self._network.assignments.wait_change(location.channel, delay_s)
