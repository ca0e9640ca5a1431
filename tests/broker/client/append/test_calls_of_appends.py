"""How much Python code an append runs in the client; the broker runs in another thread."""

import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from anyio.from_thread import start_blocking_portal

from broker.client import Client, Message, connect
from broker.client.cluster.targets import NewVChannel
from tests.local_broker import local_broker

V = NewVChannel("by-dev-rootcoord-dml_0_7v0")
REPEATS = 30
TXN_MESSAGES = 100
TXN_CALLS_MAX = 470
"""Calls of Python functions for a transaction of `TXN_MESSAGES` messages in one batch, with those
of the event loop: two for each message. Python 3.12 and later need fewer."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of one that runs in a thread and a loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, pchannels=1)) as started,
    ):
        yield started.address


async def calls_of(address: str, append: Callable[[Client], Awaitable[object]]) -> float:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async with connect(address) as log:
        await log.append(V, b"first")  # opens the stream
        await append(log)
        before = sys.getprofile()
        sys.setprofile(count)  # of this thread only
        try:
            for _ in range(REPEATS):
                await append(log)
        finally:
            sys.setprofile(before)
    return calls / REPEATS


async def test_a_transaction_in_one_batch_calls_few_python_functions(broker: str) -> None:
    messages = [Message(b"x") for _ in range(TXN_MESSAGES)]
    calls = await calls_of(broker, lambda log: log.append_messages(V, messages))
    assert calls <= TXN_CALLS_MAX
