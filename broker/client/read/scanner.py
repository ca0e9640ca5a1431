"""What `read` and `read_batches` return: an async iterator over one or more vchannels.

Batches of one vchannel come in the order of their ticks; between vchannels there is no order.

Next: broker/client/read/readers.py
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self

import anyio
from anyio.abc import TaskGroup

from broker.client.batch import MessageBatch
from broker.client.cluster.cursor import COMMIT_S
from broker.client.errors import (
    BadCommit,
    ClosedClient,
    ForkedClient,
    OutOfRange,
    TidemarkError,
)
from broker.client.message import Batch, Received
from broker.client.net.drop import Drop
from broker.client.net.one_slot_queue import OneSlotQueue, QueueClosed, QueueEnded
from broker.client.read.cursor_reader import CursorReader
from broker.client.read.deliveries import B, Deliveries, Source, UnackedBatch
from broker.model.ids import TimeTick


class Reading(Generic[B]):
    """`async for batch in scanner`, or `async for message in scanner.messages()`.

    Opens at the first step, or by `async with`; the start positions are fixed at that moment.
    Back-pressure: a program that stops reading stops the streams, so memory is bounded by the flow
    control of the streams and one delivery of each. Leave early by `async with` or `close`. Use it
    from one task at a time, but for `done` and `close`.

    Raises OutOfRange when retention removed what was not read yet, and final refusals of the
    server. Broken streams are reopened; only a bounded read ends.
    """

    def __init__(
        self,
        plan: Callable[[], Awaitable[Sequence[Source[B]]]],
        tasks: TaskGroup,
        cursor: CursorReader | None = None,
    ) -> None:
        self._plan = plan
        self._tasks = tasks
        self._cursor = cursor
        # Apart from this object: running tasks must not keep a scanner alive that was dropped.
        self._merge: _Merge[B] | None = None
        self._ended = anyio.Event()
        self._closed = False
        # No task feeds the queue in a forked child: a step would wait for ever.
        self._pid = os.getpid()

    async def open(self) -> None:
        """Fix the start positions and begin to read ahead; no-op when open already."""
        self._check_open()
        if self._merge is None:
            try:
                sources = await self._plan()
            except OutOfRange as error:
                raise await self._explained(error) from error.__cause__
            self._check_open()  # `close` may have been called while the plan was made
            self._merge = _Merge(sources, self._ended)
            if self._cursor is not None:
                self._cursor.attach(self._merge.deliveries)
            self._merge.start(self._tasks)

    @property
    def closed_tick(self) -> TimeTick:
        """No message with a tick up to it is still to come on any of the vchannels; 0: unknown.

        Batches that were read ahead count as still to come until a step has returned them. So a
        program that has processed all it got may resume behind this tick later.
        """
        return self._merge.closed_tick if self._merge else TimeTick(0)

    @property
    def error(self) -> TidemarkError | None:
        """The error that ended the read; None while it runs, at its end, and after `close`."""
        return None if self._merge is None or self._closed else self._merge.error

    async def done(self) -> None:
        """Return once nothing more is read: at its end, at an error, or after `close`.

        The last batches may not have been taken yet.
        """
        await self._ended.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> B:
        unacked = await self.step()
        self.taken(unacked)
        return unacked.batch

    async def commit(self, *, deadline_s: float = COMMIT_S) -> None:
        """Commit all that the program has got to the cursor that the reader was started from.

        Durable on return: the next reader of the cursor begins behind it. Of `messages()` it is
        everything up to the message that was returned last. What was read ahead is not included, so
        the position never goes beyond what the program has got. It moves shards without messages
        too. May be repeated.

        Raises BadCommit for a reader that was not started from a cursor, NoSuchCursor when that was
        dropped, CursorWasReset, DeadlineExceeded.
        """
        if self._cursor is None:
            raise BadCommit('this reader has no cursor; start it with start=log.cursor("name")')
        if self._merge is not None:
            await self._cursor.commit_taken(deadline_s)

    async def step(self) -> UnackedBatch[B]:
        """The next batch; `taken` is called once the program has taken all of its messages."""
        if os.getpid() != self._pid:
            raise ForkedClient("this scanner was made before the fork; connect and read again")
        if self._merge is None:
            await self.open()
        assert self._merge is not None
        try:
            unacked = await self._merge.next()
        except OutOfRange as error:
            raise await self._explained(error) from error.__cause__
        # No wait from here on: a cancelled step must not have numbered a batch nobody got.
        if self._cursor is not None:
            self._cursor.give(unacked)
        return unacked

    async def _explained(self, error: OutOfRange) -> OutOfRange:
        return error if self._cursor is None else await self._cursor.explained(error)

    def taken(
        self, unacked: UnackedBatch[B], between: tuple[Received, Received] | None = None
    ) -> None:
        """The program has all of the batch, or what ends between two messages of it."""
        if between is None:
            unacked.acknowledge()
        if self._cursor is not None and unacked.batch.mark is not None:
            if between is None:
                self._cursor.take(unacked.batch.mark)
            else:
                self._cursor.take_part(unacked.batch.mark, *between)

    def messages(self) -> AsyncIterator[Received]:
        """The same, message by message; a cancelled step loses none."""
        return _Messages(self)

    async def close(self) -> None:
        """End the streams; raises nothing, and may be called again."""
        self._closed = True
        # Here as well, because a scanner that was never opened has no task that sets it.
        self._ended.set()
        if self._merge is not None:
            self._merge.cancel()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedClient("the scanner is closed")

    def __del__(self) -> None:
        """Close the streams of a scanner that was dropped without `close`, on any thread."""
        if self._merge is not None:
            self._merge.drop.now()


class Scanner(Reading[Batch]):
    """What `Client.read` returns: batches of decoded messages."""


class BatchScanner(Reading[MessageBatch]):
    """What `Client.read_batches` returns: batches as they are stored."""


class _Messages(AsyncIterator[Received]):
    """Not an async generator: a cancelled step would end that, as if all had been read."""

    def __init__(self, scanner: Reading[Any]) -> None:
        self._scanner = scanner
        self._unacked: UnackedBatch[Any] | None = None
        self._rest: deque[Received] = deque()

    async def __anext__(self) -> Received:
        while not self._rest:
            self._unacked = await self._scanner.step()
            self._rest.extend(self._unacked.batch.messages)
            if not self._rest:
                self._scanner.taken(self._unacked)
        message = self._rest.popleft()
        assert self._unacked is not None
        # The rest of the batch is not the program's yet, and must not count as processed.
        self._scanner.taken(self._unacked, (message, self._rest[0]) if self._rest else None)
        return message


class _Merge(Generic[B]):
    """All sources of one scanner, run side by side into one queue."""

    def __init__(self, sources: Sequence[Source[B]], ended: anyio.Event) -> None:
        self._queue: OneSlotQueue[UnackedBatch[B]] = OneSlotQueue()
        self._sources = [(it, Deliveries(self._queue, it.channels)) for it in sources]
        self._scope = anyio.CancelScope()
        self._failure: TidemarkError | None = None
        self._complete = False
        self._stopped = False
        self._ended = ended
        self.drop = Drop(self.cancel)

    @property
    def deliveries(self) -> Sequence[Deliveries[B]]:
        return [it for _, it in self._sources]

    @property
    def closed_tick(self) -> TimeTick:
        return min((it.closed_tick for _, it in self._sources), default=TimeTick(0))

    @property
    def error(self) -> TidemarkError | None:
        if self._failure is None and self._stopped and not self._complete:
            return ClosedClient("the client is closed")
        return self._failure

    def start(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._run)

    async def next(self) -> UnackedBatch[B]:
        """The next batch; a cancelled call loses none."""
        try:
            return await self._queue.take()
        except QueueEnded:
            if self.error is not None:
                raise self.error from None
            raise StopAsyncIteration from None
        except QueueClosed:
            raise ClosedClient("the scanner is closed") from None

    def cancel(self) -> None:
        # After `_run` its scope belongs to no task.
        if not self._stopped:
            self._scope.cancel()
        self._queue.close()

    async def _run(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    for source, deliveries in self._sources:
                        tasks.start_soon(self._pump, source, deliveries, tasks)
                self._complete = self._failure is None
        finally:
            self._stopped = True
            self._queue.end()
            self._ended.set()

    async def _pump(self, source: Source[B], deliveries: Deliveries[B], tasks: TaskGroup) -> None:
        try:
            await source.run(deliveries)
        except TidemarkError as error:
            # The first error ends the scanner; other sources must not read on behind it.
            self._failure = self._failure or error
            tasks.cancel_scope.cancel()
