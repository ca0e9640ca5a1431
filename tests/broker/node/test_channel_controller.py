"""Opening and closing of a pchannel that is interrupted still completes."""

import asyncio

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.coordinator.assignment.reconciler_timing import ReconcilerTiming
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, Term, TxnId
from broker.model.message import AppendedInTxn, NewMessage
from broker.model.txn import TxnContext
from broker.node.directory_messages import CollectStatus
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.world import (
    DIRECTORY,
    PCHANNEL,
    World,
    appended,
    message,
    running_node,
)

LIMITS = NodeLimits(txn_finish_s=2.0)
CONTROLLER = f"/root/node/channels/{PCHANNEL}/controller"
PLACE = f"/channels/{PCHANNEL}/log"
BEGIN = TxnContext(TxnId(0), 0)


def begin() -> NewMessage:
    return message("b", 0, 900, txn=BEGIN)


async def closing(world: World) -> None:
    """Until no transaction begins any more, because somebody waits for the open ones to end."""
    while True:
        (outcome,) = await world.append(begin())
        if not isinstance(outcome, AppendedInTxn):
            return
        await world.clock.sleep(0.01)


async def removed_in_vain(world: World) -> None:
    with pytest.raises(ActorError):
        await world.remove()


@pytest.mark.parametrize("seed", range(5))
def test_a_removal_whose_controller_dies_while_transactions_end_completes(seed: int) -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS, seed=seed) as world:
            await world.assign()
            await world.append(begin())
            async with asyncio.TaskGroup() as tasks:
                removal = tasks.create_task(world.remove())
                await closing(world)
                world.system.kill(CONTROLLER)
            assert removal.result() is None
            assert ("closed", PCHANNEL, 1) in world.observer.events

    run_seeded(seed, scenario)


@pytest.mark.parametrize("seed", range(5))
def test_new_transactions_are_accepted_again_when_the_close_was_cancelled(seed: int) -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS, seed=seed) as world:
            await world.assign()
            await world.append(begin())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(removed_in_vain(world))
                await closing(world)
                world.system.kill(DIRECTORY)  # who knows what was asked for
                world.system.kill(CONTROLLER)
            deadline_s = world.clock.monotonic_s() + 60
            while world.clock.monotonic_s() < deadline_s:
                (outcome,) = await world.append(begin())
                if isinstance(outcome, AppendedInTxn):
                    return
                await world.clock.sleep(0.05)
            pytest.fail("no transaction begins any more")

    run_seeded(seed, scenario)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("supervisor", ["", "/channels", f"/channels/{PCHANNEL}", PLACE])
def test_a_channel_whose_supervisor_dies_reopens_at_the_next_term(
    supervisor: str, seed: int
) -> None:
    """Nobody has to assign it again: here there is no coordinator at all."""

    async def scenario() -> None:
        async with running_node(seed=seed) as world:
            await world.assign()
            (first,) = appended(await world.append(message("before")))
            await world.clock.sleep(1.0)
            world.system.kill(f"/root/node{supervisor}")
            killed_s = world.clock.monotonic_s()
            assert (await world.locate(term=2)).channel.term == 2
            assert world.clock.monotonic_s() < killed_s + 1.0
            (second,) = appended(await world.append(message("after")))
            assert (second.id, second.tick) > (first.id, first.tick)
            assert ("opened", PCHANNEL, 2) in world.observer.events
            assert await world.remove(term=2) is None
            await world.clock.sleep(1.0)
            assert not world.node.open_channels.all()

    run_seeded(seed, scenario)


def test_a_node_does_not_say_that_it_serves_what_it_is_closing() -> None:
    """A coordinator that asks then, as in a new session, would take it for the owner."""

    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world, asyncio.TaskGroup() as tasks:
            await world.assign()
            await world.append(begin())
            assert len((await world.ask(CollectStatus())).channels) == 1
            tasks.create_task(world.remove())
            await closing(world)
            assert world.node.open_channels.find(PCHANNEL) is not None
            assert (await world.ask(CollectStatus())).channels == ()

    run_seeded(1, scenario)


class DyingDisk(MemoryWal):
    """Neither a write nor a close of a log returns before it is `well`."""

    def __init__(self) -> None:
        self.well = asyncio.Event()
        self.well.set()
        super().__init__(pause=self._wait)

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        await super().open(channel, term)
        return LogOnDyingDisk(self, channel, term, self._channels[channel])

    async def _wait(self) -> None:
        await self.well.wait()


class LogOnDyingDisk(MemoryLog):
    async def close(self) -> None:
        await self._wal.pause()
        await super().close()


def test_a_write_that_hangs_keeps_a_channel_from_no_other_node() -> None:
    """The node has its lease all the while, so the coordinator waits for the answer."""

    async def scenario() -> None:
        disk = DyingDisk()
        async with running_node(disk) as world, asyncio.TaskGroup() as tasks:
            await world.assign()
            disk.well.clear()
            write = tasks.create_task(world.append(message("a")))
            await world.clock.sleep(1.0)
            began_s = world.clock.monotonic_s()
            assert await world.remove() is None
            assert world.clock.monotonic_s() - began_s < ReconcilerTiming().remove_deadline_s
            assert world.node.open_channels.find(PCHANNEL) is None
            write.cancel()
            disk.well.set()
            assert await world.assign(term=2) is None, "it may be opened here again"

    run_seeded(1, scenario)


def test_a_removal_that_comes_while_the_old_log_closes_waits_for_no_opening() -> None:
    async def scenario() -> None:
        disk = DyingDisk()
        async with running_node(disk) as world, asyncio.TaskGroup() as tasks:
            await world.assign()
            disk.well.clear()
            assigned = tasks.create_task(world.assign(term=2))
            await world.clock.sleep(1.0)
            began_s = world.clock.monotonic_s()
            assert await world.remove(term=2) is None
            assert world.clock.monotonic_s() - began_s < ReconcilerTiming().remove_deadline_s
            assert isinstance(await assigned, Refusal)
            disk.well.set()
            assert await world.assign(term=3) is None

    run_seeded(1, scenario)


class SilentStorage(MemoryWal):
    """An opening of a log waits until it is `back`."""

    def __init__(self) -> None:
        super().__init__()
        self.back = asyncio.Event()

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        await self.back.wait()
        return await super().open(channel, term)


@pytest.mark.parametrize("waited_s", [0.0, 0.01, 7.0])
def test_a_removal_ends_an_opening_that_waits_for_its_storage(waited_s: float) -> None:
    async def scenario() -> None:
        storage = SilentStorage()
        async with running_node(storage) as world, asyncio.TaskGroup() as tasks:
            assigned = tasks.create_task(world.assign())
            await world.clock.sleep(waited_s)
            began_s = world.clock.monotonic_s()
            assert await world.remove() is None
            assert world.clock.monotonic_s() - began_s < 0.1
            refused = await assigned
            assert isinstance(refused, Refusal)
            assert refused.code is StreamingCode.UNMATCHED_CHANNEL_TERM
            storage.back.set()
            assert await world.assign(term=2) is None
            assert appended(await world.append(message("a")))

    run_seeded(1, scenario)


def test_an_assignment_at_a_later_term_ends_an_opening_at_an_earlier_one() -> None:
    async def scenario() -> None:
        storage = SilentStorage()
        async with running_node(storage) as world, asyncio.TaskGroup() as tasks:
            early = tasks.create_task(world.assign())
            await world.clock.sleep(1.0)
            late = tasks.create_task(world.assign(term=5))
            await world.clock.sleep(0.1)
            assert isinstance(await early, Refusal)
            storage.back.set()
            assert await late is None
            assert (await world.locate(term=5)).channel.term == 5

    run_seeded(1, scenario)
