"""Processes as actors: started again when there is room for it, and let go in peace."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from actors import SupervisorSpec, System
from broker.model.ids import NodeId
from broker.remote.node_process import Fleet, fleet_tree

GUARD_S = 60.0
NODE = NodeId(1)
UNTIL_HUNG_UP = (sys.executable, "-c", "import sys; sys.stdin.read()")


@asynccontextmanager
async def running(fleet: Fleet) -> AsyncIterator[System]:
    spec = SupervisorSpec("root", children=(fleet_tree(fleet, [NODE], stop_s=GUARD_S),))
    with anyio.fail_after(GUARD_S):
        async with System(spec) as system:
            yield system


async def test_a_dead_process_is_started_again_once_others_have_taken_over() -> None:
    asked, taken_over = anyio.Event(), anyio.Event()
    gone: list[tuple[NodeId, int]] = []

    async def wait() -> None:
        asked.set()
        await taken_over.wait()

    fleet = Fleet(UNTIL_HUNG_UP, {}, lambda *each: gone.append(each), taken_over=wait)
    async with running(fleet):
        first = fleet.running[NODE]
        os.kill(first.pid, signal.SIGKILL)
        await asked.wait()
        assert (NODE, first.pid) in gone, "whoever places channels knows before that"
        assert fleet.running.get(NODE) is None
        taken_over.set()
        while NODE not in fleet.running:
            await anyio.lowlevel.checkpoint()
        assert fleet.running[NODE].pid != first.pid


async def test_a_process_that_ends_when_all_are_asked_to_is_not_started_again() -> None:
    ended = anyio.Event()
    asked: list[str] = []

    async def wait() -> None:
        asked.append("to start again")

    fleet = Fleet(UNTIL_HUNG_UP, {}, lambda *_: ended.set(), taken_over=wait)
    async with running(fleet) as system:
        fleet.hang_up()
        await ended.wait()
        await system.stop_child("/root/fleet")
    assert asked == []
    assert fleet.running == {}
