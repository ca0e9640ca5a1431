"""An event loop on a thread of its own, with one async client on it, and calls to it from others.

Why not anyio's blocking portal: a call takes two switches of threads there, and what it leaves in a
forked child waits for the thread, which does not exist in that process.
"""

import asyncio
import math
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, suppress
from inspect import isawaitable
from typing import Any, NamedTuple, TypeVar

from broker.client.client import Client
from broker.client.errors import ClosedClient, ForkedClient

T = TypeVar("T")
Opened = Callable[[], AbstractAsyncContextManager[Client]]
NAME = "tidemark-client"
LOOK_S = 1.0
"""A wait is interrupted so often. Python does not see a Ctrl-C that comes in the instant before a
thread begins to wait for a lock until that wait ends."""

ABORT_S = 5.0
"""An interrupted connect waits so long for its thread, which may be looking up the name of a host;
that cannot be cancelled."""


class LoopThread:
    """Calls to one async client, from any thread but its own.

    A call that is interrupted, as by Ctrl-C, is cancelled on the loop; the client stays usable.
    The thread is a daemon, and ends when this object is dropped: a program that forgets to close
    its client ends all the same.
    """

    def __init__(self, opened: Opened) -> None:
        """Start the thread and connect.

        Raises what `connect` does; no thread is left then, and soon none after a Ctrl-C.
        """
        self._pid = os.getpid()
        self._closed = False
        # No call may be handed to the loop behind the end of it: nobody would answer.
        self._handing = threading.Lock()
        starting: Future[_Started] = Future()
        connected: Future[Client] = Future()
        self._thread = threading.Thread(
            target=_run, args=(opened, starting, connected), name=NAME, daemon=True
        )
        try:
            self._thread.start()
            self._loop, _, stop = _outcome(starting, None)
            self.client = _outcome(connected, None)
            # Not `self.close`, which would keep this object alive for ever.
            self._end = weakref.finalize(self, _end, self._thread, self._loop, stop, self._pid)
        except BaseException:
            # A Ctrl-C comes at any step of the thread: before its loop runs, or behind the connect.
            starting.add_done_callback(_abort)
            if self._thread.is_alive():
                self._thread.join(ABORT_S)
            raise

    def call(self, function: Callable[..., T | Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """The result of the function, which runs on the loop; an awaitable is awaited there."""
        return self.started(function, *args, **kwargs)(None)

    def started(
        self, function: Callable[..., T | Awaitable[T]], /, *args: Any, **kwargs: Any
    ) -> Callable[[float | None], T]:
        """Begin a call; what is returned waits for its result, for at most so many seconds."""
        if os.getpid() != self._pid:
            raise ForkedClient(
                f"this client was connected in process {self._pid}; connect again after the fork"
            )
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call on the client's own thread would never end")

        async def run() -> T:
            made = function(*args, **kwargs)
            return await made if isawaitable(made) else made

        with self._handing:
            if self._closed:
                raise ClosedClient("the client is closed; connect again")
            future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        return lambda timeout_s: _outcome(future, timeout_s)

    def read(self, thing: object, name: str) -> Any:
        """An attribute, behind everything that this thread has sent to the loop."""
        if self._closed:
            return getattr(thing, name)
        return self.call(getattr, thing, name)

    def post(self, function: Callable[..., object], /, *args: Any) -> None:
        """Run a function on the loop, some time, in the order of the calls; no-op when closed."""
        if not self._closed and os.getpid() == self._pid:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function, *args)

    def release(self, inner: object) -> None:
        """Drop an object on the loop, whose finalizer works on its tasks."""
        # No lock: the garbage collector may have interrupted a call that holds it.
        self.post(list[object].clear, [inner])

    def close(self) -> None:
        """Close the client as `aclose` does, then end the thread. May be called again."""
        if os.getpid() == self._pid:
            with self._handing:
                self._closed = True
            self._end()

    def abort(self) -> None:
        """The same, without waiting for appends that are not answered."""
        if not self._closed and os.getpid() == self._pid:
            self.call(self.client.abort)
            self.close()


class _Started(NamedTuple):
    loop: asyncio.AbstractEventLoop
    task: "asyncio.Task[Any]"
    stop: asyncio.Event


def _run(opened: Opened, starting: "Future[_Started]", connected: "Future[Client]") -> None:
    async def serve() -> None:
        task = asyncio.current_task()
        assert task is not None
        stop = asyncio.Event()
        starting.set_result(_Started(asyncio.get_running_loop(), task, stop))
        async with opened() as client:
            connected.set_result(client)
            await stop.wait()

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve())
    except BaseException as error:  # noqa: BLE001 - raised by the thread that connects
        for waited in (starting, connected):
            if not waited.done():
                waited.set_exception(error)


def _abort(starting: "Future[_Started]") -> None:
    """Cancel what the thread does, unless it has ended or will not begin."""
    if not starting.cancelled() and starting.exception() is None:
        loop, task, _ = starting.result()
        with suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(task.cancel)


def _outcome(future: "Future[T]", timeout_s: float | None) -> T:
    left_s = math.inf if timeout_s is None else timeout_s
    try:
        while left_s > LOOK_S:
            try:
                return future.result(LOOK_S)
            except TimeoutError:
                if future.done():
                    break  # it is the call's own error, or the call has just ended
            left_s -= LOOK_S
        return future.result(left_s)
    except CancelledError:
        raise ClosedClient("the client was closed during the call") from None
    except BaseException:
        # Ctrl-C or a timeout, while the call is still running; no-op for an error of the call.
        future.cancel()
        raise


def _end(
    thread: threading.Thread, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, pid: int
) -> None:
    # The thread does not exist in a forked child, and to wait for it there would never end.
    if os.getpid() != pid:
        return
    with suppress(RuntimeError):  # it has ended
        loop.call_soon_threadsafe(stop.set)
    # The garbage collector may run on the loop's own thread.
    if threading.current_thread() is not thread:
        thread.join()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - there is none for Windows
    except ImportError:
        return None
    return uvloop.new_event_loop
