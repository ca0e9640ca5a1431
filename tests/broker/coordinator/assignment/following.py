"""What the tests of assigner and reconcilers see of them: the table, as a client follows it."""

from collections.abc import Awaitable, Callable, Sequence

from actors import System
from actors.testing import VirtualClock, run_seeded
from broker.coordinator.assignment.messages import NextAssignment
from broker.model.channel import Assignment, AssignmentVersion
from broker.model.ids import PChannelName
from tests.broker.coordinator.fakes import NAMES, ROOT, FakeNode

ASSIGNER = f"{ROOT}/assigner"
WITHIN_S = 5.0


def seeded(seed: int, test: Callable[[VirtualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(VirtualClock())

    run_seeded(seed, main)


def terms_in(table: Assignment) -> dict[PChannelName, int]:
    return {channel.name: channel.term for node in table.nodes for channel in node.channels}


async def follow_until(system: System, wanted: Callable[[Assignment], bool]) -> Assignment:
    """What a client sees: tables of growing version, until one is as wanted."""
    after: AssignmentVersion | None = None
    for _ in range(1000):
        table = await system.find(ASSIGNER).ask(NextAssignment(after), deadline_s=WITHIN_S)
        if table is None:
            continue
        assert isinstance(table, Assignment)
        assert after is None or table.version > after
        after = table.version
        if wanted(table):
            return table
    raise AssertionError(f"the table never came to be as wanted; the last was {table}")


def all_assigned(table: Assignment) -> bool:
    return len(terms_in(table)) == len(NAMES)


def is_true(table: Assignment, nodes: Sequence[FakeNode]) -> bool:
    """Whether each node serves what the table says of it."""
    by_id = {node.node_id: node for node in nodes}
    return all(
        by_id[row.node_id].served.get(channel.name) == channel.term
        for row in table.nodes
        for channel in row.channels
    )
