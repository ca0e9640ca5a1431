"""Calls of another process, and what is left of them once they were given up."""

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketStream

from broker.ports.nodes import Unreachable
from broker.remote.calls import Calls
from schemas.generated.tidemark import v1

HEALTH = "/tidemark.v1.Admin/Health"
GUARD_S = 60.0


async def test_who_was_given_up_is_not_connected_to_again() -> None:
    came: list[object] = []

    async def note(stream: SocketStream) -> None:
        async with stream:
            came.append(stream)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, note)
        calls = Calls("127.0.0.1", listener.extra(anyio.abc.SocketAttribute.local_port), {})
        with pytest.raises(Unreachable):
            await calls.call(HEALTH, v1.HealthRequest(), v1.HealthResponse, deadline_s=GUARD_S)
        assert len(came) == 1
        calls.close()
        with pytest.raises(Unreachable, match="is closed"):
            await calls.call(HEALTH, v1.HealthRequest(), v1.HealthResponse, deadline_s=GUARD_S)
        assert len(came) == 1
        tasks.cancel_scope.cancel()


async def test_a_call_that_connects_while_its_peer_is_given_up_leaves_no_connection() -> None:
    gone = anyio.Event()

    async def read_on(stream: SocketStream) -> None:
        async with stream:
            async for _ in stream:
                pass
        gone.set()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    calls = Calls("127.0.0.1", listener.extra(anyio.abc.SocketAttribute.local_port), {})

    async def call() -> None:
        with pytest.raises(Unreachable):
            await calls.call(HEALTH, v1.HealthRequest(), v1.HealthResponse, deadline_s=0.5)

    with anyio.fail_after(GUARD_S):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, read_on)
            tasks.start_soon(call)
            await anyio.lowlevel.checkpoint()
            calls.close()
            await gone.wait()
            tasks.cancel_scope.cancel()
