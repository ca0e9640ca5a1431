"""Calls of another process, and what is left of them once they were given up."""

import anyio
import pytest
from anyio.abc import SocketStream

from broker.remote.calls import Calls, Unreachable
from schemas.generated.tidemark import v1

HEALTH = "/tidemark.v1.Admin/Health"
GUARD_S = 30.0


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
        with pytest.raises(Unreachable, match="was given up"):
            await calls.call(HEALTH, v1.HealthRequest(), v1.HealthResponse, deadline_s=GUARD_S)
        assert len(came) == 1
        tasks.cancel_scope.cancel()
