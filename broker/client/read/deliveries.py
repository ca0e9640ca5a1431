"""Batches from one source to the program, and the ticks that are closed once they are taken.

Next: broker/client/read/scanner.py
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from broker.client.batch_mark import BatchMark
from broker.client.message import Received
from broker.client.net.one_slot_queue import OneSlotQueue
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import ChannelPosition


class Readable(Protocol):
    """Some messages of one vchannel, and the tick that is closed once they are taken."""

    @property
    def messages(self) -> list[Received]: ...

    @property
    def plain_closed_tick(self) -> TimeTick: ...

    @property
    def mark(self) -> BatchMark | None: ...


B = TypeVar("B", bound=Readable)


class UnackedBatch(Generic[B]):
    """A batch on its way to the program, which calls `acknowledge` when it has taken all of it."""

    __slots__ = ("_deliveries", "batch", "closed_tick", "from_id")

    def __init__(self, batch: B, deliveries: "Deliveries[B]") -> None:
        self.batch = batch
        self.closed_tick = batch.plain_closed_tick
        self.from_id = batch.mark.end.from_id if batch.mark is not None else MessageId(0)
        self._deliveries = deliveries

    @property
    def channels(self) -> tuple[str, ...]:
        """Those that its source reads."""
        return self._deliveries.channels

    def acknowledge(self) -> None:
        self._deliveries.acknowledged(self)


class Deliveries(Generic[B]):
    """What one source delivers, in the order of its ticks, to one program.

    `closed_tick`: no message with a tick up to it is still to come; 0 when unknown. It never
    decreases. A tick counts as closed only once the program has taken every batch before it,
    because a program that resumes behind the closed tick must not miss what was read ahead.
    """

    def __init__(
        self, queue: OneSlotQueue[UnackedBatch[B]], channels: tuple[str, ...] = ()
    ) -> None:
        self._queue = queue
        self.channels = channels
        self._newest: UnackedBatch[B] | None = None
        """The last batch put, unless it was acknowledged: a tick closed now waits for it."""
        self.closed_tick = TimeTick(0)
        self.from_id = MessageId(0)

    @property
    def closed(self) -> ChannelPosition:
        """Of the channels of the source: no message up to it is still to come."""
        return ChannelPosition(self.closed_tick, from_id=self.from_id)

    async def put(self, batches: Sequence[B]) -> None:
        """Wait for the queue's slot and put all batches there; no-op for none."""
        if not batches:
            return
        unacked = [UnackedBatch(batch, self) for batch in batches]
        self._newest = unacked[-1]
        await self._queue.put(unacked)

    def close_tick(self, tick: TimeTick, from_id: MessageId = MessageId(0)) -> None:
        """The source has no more messages up to `tick`: closed once all batches are taken.

        `from_id`: nor messages with smaller ids, those of open transactions included; 0: unknown.
        """
        # With a batch still in the queue the tick waits for that to be acknowledged.
        behind = self if self._newest is None else self._newest
        behind.closed_tick = max(behind.closed_tick, tick)
        behind.from_id = max(behind.from_id, from_id)

    def acknowledged(self, unacked: UnackedBatch[B]) -> None:
        """The program has taken this batch, and all that were put before it."""
        self.closed_tick = max(self.closed_tick, unacked.closed_tick)
        self.from_id = max(self.from_id, unacked.from_id)
        # Otherwise a later batch is in the queue, and ticks that are closed now wait for that one.
        if self._newest is unacked:
            self._newest = None


class Source(Protocol[B]):
    """One vchannel or pchannel to read from."""

    @property
    def channels(self) -> tuple[str, ...]:
        """The vchannels it reads, or the pchannel if it reads all of that."""
        ...

    async def run(self, deliveries: Deliveries[B]) -> None:
        """Deliver everything, in order; return at the end of a bounded read."""
        ...
