"""A process that stands still for longer than it waits for its peers: no request was wrong."""

import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from broker.client import Client, ConnectionLost, DeadlineExceeded, OutcomeUnknown, connect
from broker.client.cluster.targets import NewVChannel
from tests.local_broker import local_broker

V = NewVChannel("by-dev-rootcoord-dml_0_1v0")
IDLE_PEER_S = 0.05
GUARD_S = 60.0


async def read_one(log: Client, form: str) -> None:
    async for _ in log.read(V) if form == "messages" else log.read_batches(V):
        return


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    """A client that has appended one message.

    A busy machine holds the whole process up for longer than its idle time, too; then the broker
    closes a connection that is just being made.
    """
    until_s = anyio.current_time() + GUARD_S
    async with AsyncExitStack() as stack:
        while True:
            try:
                async with AsyncExitStack() as attempt:
                    log = await attempt.enter_async_context(connect(address))
                    await log.append(V, b"x", deadline_s=GUARD_S)
                    stack.push_async_exit(attempt.pop_all())
                    break
            except (ConnectionLost, DeadlineExceeded, OutcomeUnknown):
                if anyio.current_time() > until_s:
                    raise
        yield log


@pytest.mark.parametrize("form", ["messages", "batches"])
async def test_a_reader_that_was_opening_meanwhile_opens_again(tmp_path: Path, form: str) -> None:
    async with (
        local_broker(tmp_path, pchannels=1, idle_peer_s=IDLE_PEER_S) as broker,
        connected(broker.address) as log,
    ):
        for yields in range(30):
            with anyio.fail_after(GUARD_S):
                async with anyio.create_task_group() as readers:
                    readers.start_soon(read_one, log, form)
                    for _ in range(yields):
                        await anyio.lowlevel.checkpoint()
                    threading.Event().wait(2 * IDLE_PEER_S)  # the whole loop stands still
