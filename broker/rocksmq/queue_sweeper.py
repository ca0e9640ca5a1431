"""Retention of an embedded queue: sweeps now and then, and gives the space back."""

import asyncio
from concurrent.futures import Executor
from functools import partial

import structlog

from actors.clock import Alarm, Clock
from broker.core.rocksmq import queue_keys
from broker.core.rocksmq.page_retention import PageRules
from broker.core.rocksmq.queue_table import QueueDraft
from broker.ports.queues.ordered_store import OrderedStoreError
from broker.rocksmq.opened_queue import OpenedQueue
from broker.rocksmq.queue_errors import store_error
from broker.rocksmq.queue_writer import QueueWriter

log = structlog.get_logger()


class QueueSweeper:
    """Removes pages as the rules say. The space is given back on a thread of `executor`."""

    def __init__(
        self,
        opened: OpenedQueue,
        writer: QueueWriter,
        rules: PageRules,
        executor: Executor,
        clock: Clock,
    ) -> None:
        self._opened, self._writer, self._rules = opened, writer, rules
        self._executor, self._clock = executor, clock
        self._alarm: Alarm | None = None
        self._stopped = False

    async def sweep(self) -> None:
        """Sweep all channels, in one write. Raises RocksMQFull, RocksMQFailed."""
        shrunk: list[str] = []
        await self._remove(shrunk)
        if self._stopped:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._compact, shrunk)
        except OrderedStoreError as error:
            raise store_error(error) from error

    def begin(self, interval_s: float) -> None:
        """Sweep every `interval_s`, until `stop`."""
        self._alarm = self._clock.call_later(interval_s, partial(self._due, interval_s))

    def stop(self) -> None:
        """Begin no sweep any more, and nothing on a thread. Idempotent."""
        self._stopped = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _due(self, interval_s: float) -> None:
        shrunk: list[str] = []
        self._remove(shrunk).add_done_callback(partial(self._removed, shrunk))
        self.begin(interval_s)

    def _remove(self, shrunk: list[str]) -> "asyncio.Future[None]":
        """Fills `shrunk` with the channels that lost messages."""
        now_ms, table = self._clock.wall_ms(), self._opened.table

        def plan(draft: QueueDraft) -> None:
            shrunk[:] = [it for it in table.channels if draft.sweep(it, self._rules, now_ms)]

        return self._writer.submit(plan)

    def _removed(self, shrunk: list[str], done: "asyncio.Future[None]") -> None:
        error = done.exception()
        if error is not None:
            self._tell(error)
        elif shrunk and not self._stopped:
            loop = asyncio.get_running_loop()
            compacting = loop.run_in_executor(self._executor, self._compact, shrunk)
            compacting.add_done_callback(self._compacted)

    def _compacted(self, done: "asyncio.Future[None]") -> None:
        error = done.exception()
        if error is not None:
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        log.warning("rocksmq.sweep_failed", folder=str(self._opened.folder.root), error=str(error))

    def _compact(self, channels: list[str]) -> None:
        for name in channels:
            begin, end = queue_keys.data_prefix(name), queue_keys.data_end(name)
            self._opened.store.compact(begin, end)
