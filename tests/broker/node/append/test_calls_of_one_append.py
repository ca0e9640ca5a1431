"""How much Python code one awaited append runs, from its admission to its answer."""

import sys
from types import FrameType

from actors.testing import run_seeded
from broker.model.message import Appended
from broker.node.append.intake import append
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.world import PCHANNEL, message, running_node

APPENDS = 50
CALLS_MAX = 220
"""Calls of Python functions for one append alone, those of the seeded loop included. Calls repeat
exactly, unlike times, and they are most of what an append costs the server. Python 3.12 and later
need fewer, because comprehensions are no calls there."""


def test_one_append_alone_calls_few_python_functions() -> None:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def main() -> None:
        async with running_node(MemoryWal()) as world:
            await world.assign()
            located = await world.locate(PCHANNEL)

            async def one() -> None:
                (landed,) = await append(located, (message("x"),), deadline_s=30.0)
                assert isinstance(landed, Appended)

            await one()
            before = sys.getprofile()
            sys.setprofile(count)
            try:
                for _ in range(APPENDS):
                    await one()
            finally:
                sys.setprofile(before)

    run_seeded(1, main)
    assert calls / APPENDS <= CALLS_MAX, calls / APPENDS
