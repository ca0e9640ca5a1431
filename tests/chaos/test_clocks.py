"""Processes whose wall clocks differ: `health` of the cluster says whose, and by how much."""

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from broker.client import Client, Deadlines, TidemarkError, connect
from tests.chaos.storm.cluster import Cluster
from tests.roles_processes import GUARD_S, until

OFF_MS = 600_000


async def answers(address: str) -> bool:
    """Whether the coordinator has started: the link to it is there before."""
    try:
        async with connect(address) as log:
            return (await log.admin.health()).state == "healthy"
    except TidemarkError:
        return False


async def tells(log: Client, *wanted: str) -> None:
    """Wait until these processes, and no others, warn that their clock and the ticks differ."""

    async def as_wanted() -> bool:
        found = [it for it in (await log.admin.health()).warnings if "NTP or chrony" in it]
        return len(found) == len(wanted) and all(map(_any_has(found), wanted))

    await until(as_wanted)


def _any_has(found: Sequence[str]) -> Callable[[str], bool]:
    return lambda part: any(part in it for it in found)


async def test_a_clock_that_is_ten_minutes_ahead_is_told_of_whoever_has_it(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, nodes=2, pchannels=2)
    first, _ = cluster.nodes
    async with anyio.create_task_group() as tasks:
        try:
            await cluster.start(tasks)
            address = cluster.client_links[0].address
            await until(lambda: answers(address))
            async with connect(address, deadlines=Deadlines(connect_s=GUARD_S)) as log:
                await log.collections.create("trains", shards=2)
                await log.append("trains", b"on time")
                await tells(log)
                first.step_clock(OFF_MS)
                await tells(log, "node 1: time ticks, which follow the clock of the leading")
                # The leader and node 1 agree now, and the other node is behind.
                cluster.coordinator.step_clock(OFF_MS)
                await tells(log, "node 2: time ticks, which follow the clock of the leading")
                # Ticks do not go back with the clocks.
                for member in cluster.members:
                    member.step_clock(0)
                await tells(log, "node 1: ", "node 2: ", "of this coordinator's host")
        finally:
            cluster.end()
            tasks.cancel_scope.cancel()
