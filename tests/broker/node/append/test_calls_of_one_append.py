"""How much Python code one awaited append runs, from its admission to its answer."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from types import FrameType

from actors.testing import run_seeded
from broker.edge.tidemark.admission.batch_admission import BatchAdmission
from broker.model.batch import NewBatch
from broker.model.message import Appended
from broker.node.append.intake import append, append_then
from broker.node.appender_messages import RunOutcome
from broker.node.directory_messages import Located
from broker.wal.memory_wal import MemoryWal
from schemas.batches import ScannedBatch
from tests.broker.node.world import PCHANNEL, message, running_node

APPENDS = 50
CALLS_MAX = 210
"""Calls of Python functions for one append alone, those of the seeded loop included. Calls repeat
exactly, unlike times, and they are most of what an append costs the server. Python 3.12 and later
need fewer, because comprehensions are no calls there."""
BATCH_CALLS_MAX = 240
"""The same for a numbered batch, as the native protocol brings it, with its checks."""


def calls_of(appends: Callable[[Located], Callable[[int], Awaitable[Appended]]]) -> float:
    """Calls for each of `APPENDS` appends to a node with a log in memory."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def main() -> None:
        async with running_node(MemoryWal()) as world:
            await world.assign()
            one_located = await world.locate(PCHANNEL)
            one = appends(one_located)
            await one(0)
            # The actors behind the Appender start meanwhile, which is no part of an append.
            while one_located.groups.keeper is None:
                await world.clock.sleep(0.01)
            # What other tests have left may have finalizers, which are calls, too.
            gc.collect()
            gc.disable()
            before = sys.getprofile()
            sys.setprofile(count)
            try:
                for number in range(1, APPENDS + 1):
                    await one(number)
            finally:
                sys.setprofile(before)
                gc.enable()

    run_seeded(1, main)
    return calls / APPENDS


def test_one_append_alone_calls_few_python_functions() -> None:
    def appends(located: Located) -> Callable[[int], Awaitable[Appended]]:
        async def one(_: int) -> Appended:
            (landed,) = await append(located, (message("x"),), deadline_s=30.0)
            assert isinstance(landed, Appended)
            return landed

        return one

    assert calls_of(appends) <= CALLS_MAX


def test_one_batch_alone_calls_few_python_functions() -> None:
    admission = BatchAdmission(PCHANNEL, 1024 * 1024)

    def appends(located: Located) -> Callable[[int], Awaitable[Appended]]:
        async def one(number: int) -> Appended:
            name = f"{PCHANNEL}_1v0"
            scanned = ScannedBatch(name, (1,), producer="p", sequence=number, body=b"x")
            batch = admission.judge(scanned)
            assert isinstance(batch, NewBatch)
            answered: asyncio.Future[RunOutcome] = asyncio.get_running_loop().create_future()
            append_then(located, (batch,), lambda it: answered.set_result(it[0]), deadline_s=30.0)
            landed = await answered
            assert isinstance(landed, Appended)
            return landed

        return one

    assert calls_of(appends) <= BATCH_CALLS_MAX
