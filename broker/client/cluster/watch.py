"""Follows the ticks that pass a barrier, over broken connections and restarted brokers."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
from anyio.abc import TaskGroup

from broker.client.errors import ClosedClient, ProtocolBroken, ServerRefusal, TidemarkError
from broker.client.net.backoff import Backoff
from broker.client.net.drop import Drop
from broker.client.net.one_slot_queue import OneSlotQueue, QueueClosed, QueueEnded
from broker.model.ids import TimeTick

OpenStream = Callable[[TimeTick], AsyncGenerator[TimeTick, None]]
"""Opens a stream of the ticks above one."""


class Watch:
    """`async for tick in barrier.watch():` never ends; it reconnects when a stream breaks.

    Each tick is larger than the one before. A soft barrier yields the newest tick only; a hard one
    every tick, unless the watcher falls 1024 behind. Leave early with `async with` or `aclose`.
    For one task at a time. Raises a refusal of the server that is not retriable, and ProtocolBroken
    for a server that does not offer barriers.
    """

    def __init__(self, stream: OpenStream, tasks: TaskGroup, after: TimeTick) -> None:
        self._tasks = tasks
        # Apart from this object: the running task must not keep a watch alive that was dropped.
        self._follower = _Follower(stream, after)
        self._started = False
        self._drop: Drop | None = None

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> TimeTick:
        if not self._started:
            self._started = True
            self._drop = Drop(self._follower.cancel)
            self._tasks.start_soon(self._follower.run)
        return await self._follower.take()

    async def aclose(self) -> None:
        """End the stream. Never fails; may be called again."""
        self._close()

    async def __aenter__(self) -> "Watch":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def __del__(self) -> None:
        """Ends the stream of a watch that was dropped without `aclose`, on any thread."""
        if self._drop is not None:
            self._drop.now()

    def _close(self) -> None:
        self._started = True
        self._follower.cancel()


class _Follower:
    """Reads streams, one after the other, into a queue."""

    def __init__(self, stream: OpenStream, after: TimeTick) -> None:
        self._stream = stream
        self._seen = after
        self._running = False
        self._scope = anyio.CancelScope()
        self._failure: TidemarkError | None = None
        self._ready: OneSlotQueue[TimeTick] = OneSlotQueue()

    async def take(self) -> TimeTick:
        """The next tick. Raises what ended the watch."""
        try:
            return await self._ready.take()
        except QueueEnded:
            raise self._failure or ClosedClient("the client is closed") from None
        except QueueClosed:
            raise ClosedClient("the watch is closed") from None

    def cancel(self) -> None:
        # Otherwise its scope belongs to no task.
        if self._running:
            self._scope.cancel()
        self._ready.close()

    async def run(self) -> None:
        """Follow until cancelled, or until the server refuses for good."""
        self._running = True
        try:
            with self._scope:
                await self._follow()
        finally:
            self._running = False
            self._ready.end()

    async def _follow(self) -> None:
        backoff = Backoff()
        while not self._ready.closed:
            try:
                # Without `aclosing` the stream stays open until the generator is collected.
                async with aclosing(self._stream(self._seen)) as ticks:
                    async for tick in ticks:
                        backoff = backoff.succeeded()
                        # A new stream may repeat the newest tick.
                        if tick > self._seen:
                            self._seen = tick
                            await self._ready.put([tick])
                            # Read on only when the tick was taken: later ones wait at the server.
                            await self._ready.until_empty()
            except TidemarkError as error:
                if _is_final(error):
                    self._failure = error
                    return
                backoff = backoff.failed()
            await anyio.sleep(backoff.delay_s(1.0))


def _is_final(error: TidemarkError) -> bool:
    """Whether another stream would end the same way."""
    return isinstance(error, ServerRefusal | ProtocolBroken) and not error.retriable
