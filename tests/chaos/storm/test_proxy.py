"""A link hands bytes on, and does not while it is cut or silenced."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import Listener, SocketStream, TaskGroup

from tests.chaos.storm.cluster import free_ports
from tests.chaos.storm.proxy import BROKEN, TRICKLE_BYTES, Link

GUARD_S = 60.0
SILENCE_S = 0.4


async def echo(stream: SocketStream) -> None:
    with suppress(*BROKEN):
        async with stream:
            async for piece in stream:
                await stream.send(piece)


async def serve(listener: Listener[SocketStream]) -> None:
    async with listener:
        await listener.serve(echo)


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Link, TaskGroup]]:
    near, far = free_ports(2)
    with anyio.fail_after(GUARD_S):
        async with anyio.create_task_group() as tasks:
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=far)
            tasks.start_soon(serve, listener)
            link = Link("a link", near, far)
            await link.start(tasks)
            yield link, tasks
            tasks.cancel_scope.cancel()


async def asked(stream: SocketStream, what: bytes) -> bytes:
    await stream.send(what)
    return await stream.receive()


async def test_bytes_go_through_and_a_cut_ends_what_is_open() -> None:
    async with linked() as (link, _):
        async with await anyio.connect_tcp("127.0.0.1", link.listen_port) as stream:
            assert await asked(stream, b"one") == b"one"
            await link.cut(0.0)
            with pytest.raises(BROKEN):
                await stream.receive()
        async with await anyio.connect_tcp("127.0.0.1", link.listen_port) as stream:
            assert await asked(stream, b"two") == b"two"


async def test_a_silence_holds_bytes_back_and_loses_none() -> None:
    async with (
        linked() as (link, tasks),
        await anyio.connect_tcp("127.0.0.1", link.listen_port) as stream,
    ):
        assert await asked(stream, b"before") == b"before"
        began_s = anyio.current_time()
        tasks.start_soon(link.silence, SILENCE_S)
        await anyio.wait_all_tasks_blocked()
        assert await asked(stream, b"amid") == b"amid"
        assert anyio.current_time() - began_s > 0.9 * SILENCE_S


async def test_a_delay_makes_bytes_late() -> None:
    async with (
        linked() as (link, tasks),
        await anyio.connect_tcp("127.0.0.1", link.listen_port) as stream,
    ):
        tasks.start_soon(link.delay, GUARD_S, 0.1)
        await anyio.wait_all_tasks_blocked()
        began_s = anyio.current_time()
        assert await asked(stream, b"slow") == b"slow"
        assert anyio.current_time() - began_s > 0.19


async def test_who_loses_answers_is_heard_and_hears_nothing_until_it_is_cut() -> None:
    async with linked() as (link, tasks):
        async with await anyio.connect_tcp("127.0.0.1", link.listen_port) as stream:
            assert await asked(stream, b"before") == b"before"
            tasks.start_soon(link.lose_answers, SILENCE_S)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(BROKEN):
                await asked(stream, b"amid")
        async with await anyio.connect_tcp("127.0.0.1", link.listen_port) as stream:
            assert await asked(stream, b"after") == b"after"


async def test_a_trickle_ends_in_the_midst_of_what_is_said() -> None:
    said = bytes(64 * TRICKLE_BYTES)
    async with (
        linked() as (link, tasks),
        await anyio.connect_tcp("127.0.0.1", link.listen_port) as stream,
    ):
        tasks.start_soon(link.trickle, SILENCE_S)
        await anyio.wait_all_tasks_blocked()
        await stream.send(said)
        heard = 0
        with suppress(*BROKEN):
            while True:
                heard += len(await stream.receive())
        assert heard < len(said)


async def test_nobody_is_served_while_a_link_is_cut() -> None:
    async with linked() as (link, tasks):
        tasks.start_soon(link.cut, GUARD_S)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(BROKEN):
            async with await anyio.connect_tcp("127.0.0.1", link.listen_port) as stream:
                await stream.receive()
