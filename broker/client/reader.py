"""What `read` gives: an async iterator of batches over one vchannel or the shards of a collection.

It owns the merge and its bound. Messages of one vchannel come in order; between vchannels there is
no order. Next: broker/client/subscription.py
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from types import TracebackType

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from broker.client.errors import ClosedClient, ForkedClient, TidemarkError
from broker.client.message import Batch, Received
from broker.client.subscription import Subscription
from broker.model.ids import TimeTick

Plan = Callable[[], Awaitable[Sequence[Subscription]]]
"""Resolves names and start positions when the reader is opened."""

BATCHES_READY = 1
"""Batches that may wait for the program beside the one each vchannel holds in its hand."""


class Reader:
    """`async for batch in reader`, or `async for message in reader.messages()`.

    It opens at the first step, or by `async with`; the start positions are fixed at that moment.
    A program that stops reading stops the streams: what is in memory is bounded by the streams'
    windows. Leave early by `async with` or `aclose`. Not for two tasks at once.

    Raises OutOfRange when retention removed what was not read yet, and what the server refuses for
    good; it never ends by itself unless the read is bounded.
    """

    def __init__(self, plan: Plan, tasks: TaskGroup) -> None:
        self._plan = plan
        self._tasks = tasks
        self._merge: _Merge | None = None
        self._closed = False
        self._pid = os.getpid()

    async def open(self) -> None:
        """Fix the start positions and begin to read ahead; a second time it does nothing."""
        if self._closed:
            raise ClosedClient("the reader is closed")
        if self._merge is None:
            self._merge = _Merge(await self._plan())
            self._merge.start(self._tasks)

    @property
    def closed_tick(self) -> TimeTick:
        """Nothing with a tick up to it is still to come, on any of the vchannels; 0: not known."""
        return self._merge.closed_tick if self._merge else TimeTick(0)

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> Batch:
        if os.getpid() != self._pid:
            raise ForkedClient("this reader was made before the fork; connect and read again")
        if self._merge is None:
            await self.open()
        assert self._merge is not None
        return await self._merge.next()

    def messages(self) -> AsyncIterator[Received]:
        """The same, one message after the other; a step that is cancelled may be taken again."""
        return _Messages(self)

    async def aclose(self) -> None:
        """End the streams; always returns, and may be called again."""
        self._closed = True
        if self._merge is not None:
            self._merge.cancel()

    async def __aenter__(self) -> "Reader":
        await self.open()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        """A reader that was only dropped does not leave its streams open."""
        if self._merge is not None:
            self._merge.cancel()


class _Messages(AsyncIterator[Received]):
    """No generator, because a cancelled step would end that for good, as if all had been read."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._rest: Iterator[Received] = iter(())

    async def __anext__(self) -> Received:
        while True:
            for message in self._rest:
                return message
            self._rest = iter((await anext(self._reader)).messages)


class _Merge:
    """All subscriptions of one reader and the narrow queue that they share."""

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self._subscriptions = subscriptions
        self._scope = anyio.CancelScope()
        self._failure: TidemarkError | None = None
        self._complete = False
        self._stopped = False
        self._put: MemoryObjectSendStream[Batch]
        self._get: MemoryObjectReceiveStream[Batch]
        self._put, self._get = anyio.create_memory_object_stream[Batch](BATCHES_READY)
        self._ready = anyio.Event()

    @property
    def closed_tick(self) -> TimeTick:
        return min((it.closed_tick for it in self._subscriptions), default=TimeTick(0))

    def start(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._run)

    async def next(self) -> Batch:
        """Takes a batch only when it can give it: a step that is cancelled loses none."""
        try:
            while True:
                try:
                    return self._get.receive_nowait()
                except anyio.WouldBlock:
                    if self._ready.is_set():
                        self._ready = anyio.Event()
                    await self._ready.wait()
        except anyio.EndOfStream:
            if self._failure is not None:
                raise self._failure from None
            if self._complete:
                raise StopAsyncIteration from None
            raise ClosedClient("the client is closed") from None
        except anyio.ClosedResourceError:
            raise ClosedClient("the reader is closed") from None

    def cancel(self) -> None:
        if not self._stopped:
            self._scope.cancel()
        self._get.close()

    async def _run(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    for subscription in self._subscriptions:
                        tasks.start_soon(self._pump, subscription, tasks)
                self._complete = self._failure is None
        finally:
            self._stopped = True
            self._put.close()
            self._ready.set()

    async def _deliver(self, batch: Batch) -> None:
        await self._put.send(batch)
        self._ready.set()

    async def _pump(self, subscription: Subscription, tasks: TaskGroup) -> None:
        try:
            await subscription.run(self._deliver)
        except TidemarkError as error:
            self._failure = self._failure or error
            tasks.cancel_scope.cancel()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
