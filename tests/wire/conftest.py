"""A broker of its own for each test of the wire, and a grpcio peer connected to it."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.wire.peer import Peer, connected
from tests.wire.small_broker import SmallBroker, small_broker


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[SmallBroker]:
    """Lives in one task: its cancel scopes must end in the task that opened them."""
    started: asyncio.Queue[SmallBroker] = asyncio.Queue()
    finished = asyncio.Event()

    async def live() -> None:
        async with small_broker() as broker:
            started.put_nowait(broker)
            await finished.wait()

    life = asyncio.get_running_loop().create_task(live())
    begun = asyncio.get_running_loop().create_task(started.get())
    await asyncio.wait((life, begun), return_when=asyncio.FIRST_COMPLETED)
    if life.done():
        begun.cancel()
        life.result()
    yield begun.result()
    finished.set()
    await life


@pytest_asyncio.fixture
async def peer(broker: SmallBroker) -> AsyncIterator[Peer]:
    async with connected(broker) as opened:
        yield opened
