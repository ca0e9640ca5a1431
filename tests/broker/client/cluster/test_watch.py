"""Watches that are dropped, and servers that never will have what is watched."""

import gc
from collections.abc import AsyncGenerator

import anyio
import pytest

from broker.client.cluster.watch import Watch
from broker.client.errors import ConnectionLost, NotOffered, ProtocolBroken
from broker.model.ids import TimeTick

GUARD_S = 30.0


class Server:
    """Streams of ticks 1, 2, 3, ... without end."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.ended = anyio.Event()

    async def stream(self, after: TimeTick) -> AsyncGenerator[TimeTick, None]:
        self.opened += 1
        try:
            while True:
                after = TimeTick(after + 1)
                yield after
        finally:
            self.closed += 1
            self.ended.set()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "on another thread"])
async def test_a_watch_that_is_dropped_after_its_first_tick_ends_its_stream(
    elsewhere: bool,
) -> None:
    server = Server()
    async with anyio.create_task_group() as tasks:
        watches = [Watch(server.stream, tasks, TimeTick(0))]
        assert await anext(watches[0]) == 1
        if elsewhere:
            await anyio.to_thread.run_sync(watches.clear)
        else:
            watches.clear()
        gc.collect()
        with anyio.fail_after(GUARD_S):
            await server.ended.wait()
    assert (server.opened, server.closed) == (1, 1)


@pytest.mark.parametrize("error", [ProtocolBroken("an odd frame"), NotOffered("no such call")])
async def test_what_no_other_stream_would_change_is_raised(error: ProtocolBroken) -> None:
    async def broken(after: TimeTick) -> AsyncGenerator[TimeTick, None]:
        if after == 0:
            raise error
        yield after

    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(GUARD_S), pytest.raises(ProtocolBroken, match=str(error)):
            await anext(Watch(broken, tasks, TimeTick(0)))


async def test_a_broken_stream_is_followed_by_another() -> None:
    server, lost = Server(), [ConnectionLost("the connection broke")]

    async def stream(after: TimeTick) -> AsyncGenerator[TimeTick, None]:
        if lost:
            raise lost.pop()
        async for tick in server.stream(after):
            yield tick

    async with anyio.create_task_group() as tasks, Watch(stream, tasks, TimeTick(4)) as watch:
        with anyio.fail_after(GUARD_S):
            assert await anext(watch) == 5
