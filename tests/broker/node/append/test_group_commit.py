"""When appends are acknowledged at each durability level."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from actors.testing import run_seeded
from broker.model.batch import Durability
from broker.model.failure import Refusal, StreamingCode
from broker.model.message import Appended
from broker.node.append.intake import append
from broker.node.appender_messages import AppendOutcome
from broker.wal.memory_wal import Fault, MemoryWal
from tests.broker.node.world import PCHANNEL, Reader, World, appended, message, running_node

FSYNC, OS, MEMORY = Durability.FSYNC, Durability.OS, Durability.MEMORY
Asked = Mapping[Durability, "asyncio.Task[AppendOutcome]"]


class Disk:
    """A storage whose syncs wait, while `waits`, until they are released; or fail with `fault`."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.waits = False
        self.syncs = asyncio.Condition()
        self.begun = self.released = 0
        self.wal = MemoryWal(fault_of=lambda *_: self.fault, pause=self._sync)

    async def _sync(self) -> None:
        async with self.syncs:
            self.begun += 1
            number = self.begun
            self.syncs.notify_all()
            await self.syncs.wait_for(lambda: not self.waits or self.released >= number)

    async def begins(self, number: int) -> None:
        async with self.syncs:
            await self.syncs.wait_for(lambda: self.begun >= number)

    async def release(self, number: int | None = None) -> None:
        """Let the syncs go up to this one; None for all there will ever be."""
        async with self.syncs:
            self.released, self.waits = number or 0, number is not None
            self.syncs.notify_all()


async def asked(world: World, level: Durability, text: str = "") -> AppendOutcome:
    located = await world.locate(PCHANNEL)
    new = message(text or level.name)
    (outcome,) = await append(located, (new,), deadline_s=30.0, durability=level)
    return outcome


@asynccontextmanager
async def in_one_group(world: World, disk: Disk) -> AsyncIterator[Asked]:
    """One append at each level; they wait together behind another one, which is synced now."""
    located = await world.locate(PCHANNEL)
    disk.waits, disk.released = True, disk.begun
    first = disk.begun + 1
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asked(world, FSYNC, "first"))
        await disk.begins(first)
        found = {level: tasks.create_task(asked(world, level)) for level in Durability}
        expected = len("first") + sum(len(level.name) for level in Durability)
        while located.backlog.bytes_waiting < expected:
            await world.clock.sleep(0.001)
        yield found
        await disk.release()


def on_a_node(scenario: Callable[[World, Disk], Awaitable[None]]) -> None:
    async def run() -> None:
        disk = Disk()
        async with running_node(disk.wal) as world:
            await world.assign()
            await world.locate(PCHANNEL)
            await scenario(world, disk)

    run_seeded(1, run)


def test_lower_durability_is_acknowledged_before_the_sync_and_read_only_after_it() -> None:
    async def scenario(world: World, disk: Disk) -> None:
        reader = Reader(world)
        async with in_one_group(world, disk) as found:
            await disk.release(disk.begun)
            early = await asyncio.gather(found[OS], found[MEMORY])
            await disk.begins(disk.released + 1)
            assert not found[FSYNC].done()
            await reader.pull()
            assert {it.body for it in reader.messages} <= {b"first"}
        places = appended([*early, await found[FSYNC]])
        await reader.read_until(max(it.id for it in places))
        bodies = {it.id: it.body for it in reader.messages}
        assert [bodies[it.id] for it in places] == [b"OS", b"MEMORY", b"FSYNC"]

    on_a_node(scenario)


@pytest.mark.parametrize(
    ("fault", "in_time"),
    [(Fault.LOST, {MEMORY}), (Fault.UNSYNCED, {MEMORY, OS}), (Fault.KEPT, {MEMORY, OS})],
)
def test_a_failed_sync_is_reported_to_appends_not_yet_acknowledged(
    fault: Fault, in_time: set[Durability]
) -> None:
    async def scenario(world: World, disk: Disk) -> None:
        async with in_one_group(world, disk) as found:
            disk.fault = fault
            await disk.release()
            outcomes = {level: await task for level, task in found.items()}
        assert {level for level, it in outcomes.items() if isinstance(it, Appended)} == in_time
        for outcome in outcomes.values():
            if isinstance(outcome, Refusal):
                assert outcome.code is StreamingCode.UNKNOWN
                assert "may or may not be stored" in outcome.cause
        disk.fault = None
        after = await world.locate(PCHANNEL, 2)
        assert after.backlog.bytes_waiting == 0
        (last,) = appended([await asked(world, FSYNC, "after")])
        reader = Reader(world)
        await reader.read_until(last.id)
        kept = {level.name.encode() for level in Durability} if fault is Fault.KEPT else set()
        assert {it.body for it in reader.messages} == {b"first", b"after", *kept}

    on_a_node(scenario)


def test_bytes_of_an_answered_append_count_until_they_are_stored() -> None:
    async def scenario(world: World, disk: Disk) -> None:
        located = await world.locate(PCHANNEL)
        async with in_one_group(world, disk) as found:
            await disk.release(disk.begun)
            await found[MEMORY]
            assert located.backlog.bytes_waiting >= sum(len(level.name) for level in Durability)
        assert located.backlog.bytes_waiting == 0

    on_a_node(scenario)


def test_what_is_refused_is_refused_at_every_level() -> None:
    async def scenario(world: World, _disk: Disk) -> None:
        located = await world.locate(PCHANNEL)
        for level in Durability:
            ahead = message("x", barrier_tick=(1 << 64) - 1)
            (outcome,) = await append(located, (ahead,), deadline_s=30.0, durability=level)
            assert isinstance(outcome, Refusal), level

    on_a_node(scenario)
