"""Writes of an embedded queue: all that wait become one synced batch, in the order of the calls.

Changes are planned on a draft of the table; it becomes the table when the batch is durable. When
the write fails, the draft is dropped and all calls of the batch fail: nothing of them is visible.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

from actors.clock import Alarm, Clock
from broker.core.rocksmq.page_retention import PageRules
from broker.core.rocksmq.queue_channel import QueueChannel
from broker.core.rocksmq.queue_table import QueueDraft, QueueTable
from broker.model.rocksmq.ordered_writes import OrderedWrite
from broker.model.rocksmq.queue_refusal import QueueRefusal
from broker.ports.queues.ordered_store import OrderedStore, OrderedStoreError
from broker.rocksmq.queue_errors import refused, store_error

BATCH_CALLS_MAX = 1024
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Of one batch, unless one call alone has more. The others wait for the next one."""

WAITING_BYTES_MAX = 128 * 1024 * 1024
"""Payload of calls that wait for a batch; beyond it, calls wait before they count."""

POSITIONS_DELAY_S = 0.1
"""Positions wait so long for another write to go with."""

Change = Callable[[QueueDraft], QueueRefusal | None]


@dataclass(slots=True, eq=False)
class QueuedChange:
    """A call that waits to become durable."""

    plan: Change
    bytes: int
    applied: Callable[[], None] | None
    """Called when it is durable, in the order of the changes, before anybody else runs."""
    done: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


Planned = list[tuple[QueuedChange, QueueRefusal | None]]
"""The changes of a batch, each with the refusal that it gets, if it was refused."""


class QueueWriter:
    """The one who writes. Belongs to one event loop; `executor` has one thread, its own."""

    def __init__(
        self,
        store: OrderedStore,
        table: QueueTable,
        rules: PageRules,
        executor: Executor,
        clock: Clock,
    ) -> None:
        self._store, self._executor, self._clock = store, executor, clock
        self._table, self._rules = table, rules
        self._waiting: deque[QueuedChange] = deque()
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._running: asyncio.Future[None] | None = None
        self._positions: dict[tuple[str, str], int] = {}
        """To be stored with the next batch, by group and channel."""
        self._alarm: Alarm | None = None
        self.changed: Callable[[Mapping[str, QueueChannel | None]], None] = lambda _: None
        """Called after each batch with the channels that it changed."""

    async def room(self) -> None:
        """Wait until another call may wait here."""
        while not self._room.is_set():
            await self._room.wait()

    def submit(
        self, plan: Change, *, size: int = 0, applied: Callable[[], None] | None = None
    ) -> "asyncio.Future[None]":
        """Queue a change; the future ends when it is durable, or with what was wrong.

        Cancelled before its batch begins, it has no effect; later, it takes effect or fails.
        """
        change = QueuedChange(plan, size, applied)
        self._waiting.append(change)
        self._count(size)
        if self._running is None:
            self._start()
        return change.done

    def note_position(self, group: str, channel: str, position: int) -> None:
        """Store a position soon: with the next batch, or in one of its own."""
        self._positions[group, channel] = position
        self._store_positions_soon()

    def forget_position(self, group: str, channel: str) -> None:
        """Do not store what was noted for this group."""
        self._positions.pop((group, channel), None)

    async def idle(self) -> None:
        """Wait until all that was queued is written, and the noted positions, too.

        Raises RocksMQError when the positions cannot be stored.
        """
        while self._running is not None or self._waiting:
            await asyncio.wait([self._running or self._waiting[0].done])
        if self._positions:
            await self.submit(lambda _: None)

    def stop(self) -> None:
        """Write no positions any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _store_positions_soon(self) -> None:
        """While a batch is written nothing is needed: its end calls this again."""
        if self._alarm is None and self._running is None:
            self._alarm = self._clock.call_later(POSITIONS_DELAY_S, self._positions_due)

    def _positions_due(self) -> None:
        self._alarm = None
        if self._running is None:
            self._start()

    def _start(self) -> None:
        """Begin the next batch, if there is anything to write."""
        self.stop()
        while self._running is None and (self._waiting or self._positions):
            draft = QueueDraft(self._table, self._rules.page_bytes)
            positions, self._positions = self._positions, {}
            for (group, channel), position in positions.items():
                draft.set_position(group, channel, position)
            taken = self._next_changes()
            try:
                planned = [(it, it.plan(draft)) for it in taken]
                writes = draft.writes()
            except Exception as broken:  # noqa: BLE001 - nobody may wait for ever for a bug of ours
                _fail(taken, broken)
                continue
            if writes:
                self._write(draft, planned, positions, writes)
            else:
                self._end(draft, planned)

    def _write(
        self,
        draft: QueueDraft,
        planned: Planned,
        positions: dict[tuple[str, str], int],
        writes: list[OrderedWrite],
    ) -> None:
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._executor, self._store.write, writes)
        self._running = running
        running.add_done_callback(lambda it: self._written(it, draft, planned, positions))

    def _next_changes(self) -> list[QueuedChange]:
        taken: list[QueuedChange] = []
        size = 0
        while self._waiting and len(taken) < BATCH_CALLS_MAX:
            if taken and size + self._waiting[0].bytes > BATCH_BYTES_MAX:
                break
            change = self._waiting.popleft()
            self._count(-change.bytes)
            if not change.done.cancelled():
                size += change.bytes
                taken.append(change)
        return taken

    def _written(
        self,
        running: "asyncio.Future[None]",
        draft: QueueDraft,
        planned: Planned,
        positions: dict[tuple[str, str], int],
    ) -> None:
        self._running = None
        error = running.exception()
        if error is None:
            self._end(draft, planned)
        else:
            # Newer ones win; without a place in the table they are dropped by the next draft.
            self._positions = {**positions, **self._positions}
            _fail([change for change, _ in planned], error)
        if self._waiting:
            self._start()
        if self._positions:
            self._store_positions_soon()

    def _end(self, draft: QueueDraft, planned: Planned) -> None:
        """Make the draft the table's state, and answer."""
        changed = draft.apply()
        for change, refusal in planned:
            if refusal is None and change.applied is not None:
                change.applied()
            if change.done.done():
                continue  # cancelled after its batch had begun
            if refusal is None:
                change.done.set_result(None)
            else:
                change.done.set_exception(refused(refusal))
        self.changed(changed)

    def _count(self, size: int) -> None:
        self._waiting_bytes += size
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self._room.clear()
        else:
            self._room.set()


def _fail(changes: list[QueuedChange], error: BaseException) -> None:
    """Each call gets an exception of its own when the store failed: each adds its traceback."""
    for change in changes:
        if not change.done.done():
            told = store_error(error) if isinstance(error, OrderedStoreError) else error
            change.done.set_exception(told)
