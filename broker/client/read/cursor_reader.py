"""What one reader of a cursor has given out, and what of it is committed.

Batches may be committed in any order and by several tasks at once. What is stored never goes
beyond what this reader gave out, and never past a batch that was not committed.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio

from broker.client.batch import MessageBatch
from broker.client.batch_mark import BatchMark
from broker.client.cluster.cursor import COMMIT_S, Cursor
from broker.client.errors import BadCommit, DeadlineExceeded, OutOfRange, TidemarkError
from broker.client.message import Received
from broker.client.read.deliveries import Deliveries, UnackedBatch
from broker.core.naming import pchannel_of
from broker.core.time.commit_tracker import RUNS_MAX, CommitTracker, TooManyGaps
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import WHOLE_TICK, ChannelPosition

Positions = Mapping[str, ChannelPosition]
BEGIN = ChannelPosition(TimeTick(0), from_id=MessageId(0))


class CursorReader:
    """Of one scanner that was started from `cursor`. Implements `Commits`."""

    def __init__(self, cursor: Cursor, *, rows: bool = False) -> None:
        """`rows`: the program gets Arrow rows alone, and no other messages."""
        self.cursor = cursor
        self._rows = rows
        self._epoch = 0
        self._tracker = CommitTracker({})
        self._stored: dict[str, ChannelPosition] = {}
        self._deliveries: dict[str, Deliveries[Any]] = {}
        self._lock = anyio.Lock()

    async def open(self, channels: Sequence[str], first_ids: "FirstIds") -> Positions:
        """Where to start on each channel; makes the cursor, at the first ids, if there is none."""
        view = await self.cursor.open(channels, first_ids)
        self._epoch = view.epoch
        self._stored = {name: view.positions[name] for name in channels}
        self._tracker = CommitTracker(self._stored)
        return dict(self._stored)

    async def explained(self, error: OutOfRange) -> OutOfRange:
        """The same error, with why retention has passed the cursor, if the server says so."""
        try:
            passed = (await self.cursor.get(measured=False)).passed
        except TidemarkError:
            return error
        why = passed.get(pchannel_of(error.channel))
        if error.why or why is None:
            return error
        name = self.cursor.name
        return error.because(
            f"cursor {name!r} was passed by retention: {why};"
            f' log.cursor({name!r}).reset("all") sets it to what is left'
        )

    def attach(self, deliveries: Sequence[Deliveries[Any]]) -> None:
        """The reader's sources: how far they are closed moves channels without messages."""
        self._deliveries = {name: it for it in deliveries for name in it.channels}

    def give(self, unacked: UnackedBatch[Any]) -> None:
        """The program gets this batch now."""
        batch, mark = unacked.batch, unacked.batch.mark
        assert mark is not None, "a source made a batch without a mark"
        mark.commits = self
        if self._has_messages(batch):
            own = (batch.vchannel,)
            # A message for every vchannel is one of each that this source reads.
            mark.places = self._tracker.give(
                own if own[0] in unacked.channels else unacked.channels
            )

    def _has_messages(self, batch: Any) -> bool:
        """Nothing is to be processed of an empty batch, so nobody has to commit it."""
        if isinstance(batch, MessageBatch):
            return batch.has_rows if self._rows else len(batch) > 0
        return bool(batch.messages)

    def take(self, mark: BatchMark) -> None:
        """The program has all of the batch: `commit_taken` includes it."""
        self._tracker.take(mark.places, mark.end)

    def take_part(self, mark: BatchMark, last: Received, following: Received) -> None:
        """The program has the batch up to `last`; of a transaction only a part, maybe."""
        id = last.id if following.tick == last.tick else WHOLE_TICK
        until = ChannelPosition(last.tick, id)
        self._tracker.take_part(mark.places, until)

    async def commit(self, mark: BatchMark, deadline_s: float = COMMIT_S) -> None:
        """The batch is processed; durable on return, unless an earlier one is missing."""
        self._count(mark)
        await self._store(deadline_s)

    async def commit_taken(self, deadline_s: float = COMMIT_S) -> None:
        """All that the program has taken is processed; durable on return."""
        self._tracker.commit_taken()
        await self._store(deadline_s)

    def _count(self, mark: BatchMark) -> None:
        try:
            self._tracker.commit(mark.places, mark.end)
        except TooManyGaps as error:
            channel, number = error.place
            raise BadCommit(
                f"batch {number} that this reader gave out of {channel} is not committed, and"
                f" {RUNS_MAX} runs of later batches are; commit that batch first"
            ) from None

    async def _store(self, deadline_s: float) -> None:
        try:
            with anyio.fail_after(deadline_s):
                # One request at a time; what others commit meanwhile goes with the next one.
                async with self._lock:
                    changed = self._changed()
                    if changed:
                        await self.cursor.store(self._epoch, changed, deadline_s)
                        self._stored.update(changed)
        except TimeoutError:
            raise DeadlineExceeded(
                f"cursor {self.cursor.name!r}: the commit was not answered within {deadline_s} s;"
                " commit again"
            ) from None

    def _changed(self) -> Positions:
        found = {}
        for name, stored in self._stored.items():
            deliveries = self._deliveries.get(name)
            now = self._tracker.position(name, deliveries.closed if deliveries else BEGIN)
            # A larger `from_id` alone is not worth a write.
            if (now.tick, now.id) > (stored.tick, stored.id):
                found[name] = now
        return found


FirstIds = Callable[[], Awaitable[Mapping[str, MessageId]]]
"""Asks for the first id that each channel holds."""
