"""What `read` gives: an async iterator of batches over one vchannel or the shards of a collection.

It owns the merge and its end. Messages of one vchannel come in order; between vchannels there is
no order. Next: broker/client/read/subscription.py
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, Self

import anyio
from anyio.abc import TaskGroup

from broker.client.batch import MessageBatch
from broker.client.errors import ClosedClient, ForkedClient, TidemarkError
from broker.client.message import Batch, Received
from broker.client.net.rendezvous import NothingMore, Rendezvous, TakerLeft
from broker.client.read.lane import B, Lane, Passed
from broker.model.ids import TimeTick


class Source(Protocol[B]):
    """One vchannel, or pchannel, to read from."""

    async def run(self, lane: Lane[B]) -> None:
        """Hand everything over, in order."""
        ...


class Reading(Generic[B]):
    """`async for batch in scanner`, or `async for message in scanner.messages()`.

    It opens at the first step, or by `async with`; the start positions are fixed at that moment.
    A program that stops reading stops the streams: what is in memory is bounded by the streams'
    windows, and what one of them gave last beside what each holds in its hand. Leave early by
    `async with` or `close`. Not for two tasks at once, but for `done` and `close`.

    Raises OutOfRange when retention removed what was not read yet, and what the server refuses for
    good; it never ends by itself unless the read is bounded.
    """

    def __init__(
        self, plan: Callable[[], Awaitable[Sequence[Source[B]]]], tasks: TaskGroup
    ) -> None:
        self._plan = plan
        self._tasks = tasks
        self._merge: _Merge[B] | None = None
        self._ended = anyio.Event()
        self._closed = False
        self._pid = os.getpid()

    async def open(self) -> None:
        """Fix the start positions and begin to read ahead; a second time it does nothing."""
        self._check_open()
        if self._merge is None:
            subscriptions = await self._plan()
            self._check_open()  # it may have been closed meanwhile
            self._merge = _Merge(subscriptions, self._ended)
            self._merge.start(self._tasks)

    @property
    def closed_tick(self) -> TimeTick:
        """Nothing with a tick up to it is still to come, on any of the vchannels; 0: not known.

        What was read ahead is still to come, until a step has returned it: who has dealt with all
        that came may go on behind this tick another time.
        """
        return self._merge.closed_tick if self._merge else TimeTick(0)

    @property
    def error(self) -> TidemarkError | None:
        """Why it ended: None while it goes on, after its own end, and after `close`."""
        return None if self._merge is None or self._closed else self._merge.error

    async def done(self) -> None:
        """Return once nothing more is read: at its end, at an error, or after `close`.

        The last batches may still wait to be taken.
        """
        await self._ended.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> B:
        passed = await self.step()
        passed.taken()
        return passed.batch

    async def step(self) -> Passed[B]:
        """The next batch, for who says himself when all of it was taken."""
        if os.getpid() != self._pid:
            raise ForkedClient("this scanner was made before the fork; connect and read again")
        if self._merge is None:
            await self.open()
        assert self._merge is not None
        return await self._merge.next()

    def messages(self) -> AsyncIterator[Received]:
        """The same, one message after the other; a step that is cancelled may be taken again."""
        return _Messages(self)

    async def close(self) -> None:
        """End the streams; always returns, and may be called again."""
        self._closed = True
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
        """One that was only dropped does not leave its streams open."""
        if self._merge is not None:
            self._merge.cancel()


class Scanner(Reading[Batch]):
    """What `Client.read` gives: batches of messages that are ready to use."""


class BatchScanner(Reading[MessageBatch]):
    """What `Client.read_batches` gives: batches as they lie in the log."""


class _Messages(AsyncIterator[Received]):
    """No generator, because a cancelled step would end that for good, as if all had been read."""

    def __init__(self, scanner: Reading[Any]) -> None:
        self._scanner = scanner
        self._passed: Passed[Any] | None = None
        self._rest: deque[Received] = deque()

    async def __anext__(self) -> Received:
        while not self._rest:
            self._passed = await self._scanner.step()
            self._rest.extend(self._passed.batch.messages)
            self._settle()
        message = self._rest.popleft()
        self._settle()
        return message

    def _settle(self) -> None:
        if not self._rest and self._passed is not None:
            self._passed.taken()
            self._passed = None


class _Merge(Generic[B]):
    """All subscriptions of one scanner and the narrow place that they share."""

    def __init__(self, subscriptions: Sequence[Source[B]], ended: anyio.Event) -> None:
        self._ready: Rendezvous[Passed[B]] = Rendezvous()
        self._sources = [(it, Lane(self._ready)) for it in subscriptions]
        self._scope = anyio.CancelScope()
        self._failure: TidemarkError | None = None
        self._complete = False
        self._stopped = False
        self._ended = ended

    @property
    def closed_tick(self) -> TimeTick:
        return min((lane.closed_tick for _, lane in self._sources), default=TimeTick(0))

    @property
    def error(self) -> TidemarkError | None:
        if self._failure is None and self._stopped and not self._complete:
            return ClosedClient("the client is closed")
        return self._failure

    def start(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._run)

    async def next(self) -> Passed[B]:
        """A step that is cancelled loses no batch."""
        try:
            return await self._ready.take()
        except NothingMore:
            if self.error is not None:
                raise self.error from None
            raise StopAsyncIteration from None
        except TakerLeft:
            raise ClosedClient("the scanner is closed") from None

    def cancel(self) -> None:
        if not self._stopped:
            self._scope.cancel()
        self._ready.leave()

    async def _run(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    for source, lane in self._sources:
                        tasks.start_soon(self._pump, source, lane, tasks)
                self._complete = self._failure is None
        finally:
            self._stopped = True
            self._ready.end()
            self._ended.set()

    async def _pump(self, source: Source[B], lane: Lane[B], tasks: TaskGroup) -> None:
        try:
            await source.run(lane)
        except TidemarkError as error:
            self._failure = self._failure or error
            tasks.cancel_scope.cancel()
