"""Follows the ticks that pass a barrier, over broken connections and restarted brokers."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
from anyio.abc import TaskGroup

from broker.client.errors import ClosedClient, ServerRefusal, TidemarkError
from broker.client.net.backoff import Backoff
from broker.client.net.one_slot_queue import OneSlotQueue, QueueClosed, QueueEnded
from broker.model.ids import TimeTick

OpenStream = Callable[[TimeTick], AsyncGenerator[TimeTick, None]]
"""Opens a stream of the ticks above one."""


class Watch:
    """`async for tick in barrier.watch():` never ends; it reconnects when a stream breaks.

    Each tick is larger than the one before. A soft barrier yields the newest tick only; a hard one
    every tick, unless the watcher falls 1024 behind. Leave early with `async with` or `aclose`.
    For one task at a time. Raises a refusal of the server that is not retriable.
    """

    def __init__(self, stream: OpenStream, tasks: TaskGroup, after: TimeTick) -> None:
        self._stream = stream
        self._tasks = tasks
        self._seen = after
        self._started = self._ended = False
        self._scope = anyio.CancelScope()
        self._failure: TidemarkError | None = None
        self._ready: OneSlotQueue[TimeTick] = OneSlotQueue()

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> TimeTick:
        if not self._started:
            self._started = True
            self._tasks.start_soon(self._run)
        try:
            return await self._ready.take()
        except QueueEnded:
            raise self._failure or ClosedClient("the client is closed") from None
        except QueueClosed:
            raise ClosedClient("the watch is closed") from None

    async def aclose(self) -> None:
        """End the stream. Never fails; may be called again."""
        self._close()

    async def __aenter__(self) -> "Watch":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def __del__(self) -> None:
        """Ends the stream of a watch that was dropped without `aclose`."""
        self._close()

    def _close(self) -> None:
        if self._started and not self._ended:
            self._scope.cancel()
        elif not self._started:
            self._started = self._ended = True
        self._ready.close()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._follow()
        finally:
            self._ended = True
            self._ready.end()

    async def _follow(self) -> None:
        backoff = Backoff()
        while True:
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
                if isinstance(error, ServerRefusal) and not error.retriable:
                    self._failure = error
                    return
                backoff = backoff.failed()
            await anyio.sleep(backoff.delay_s(1.0))
