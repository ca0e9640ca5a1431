"""Kills at seeded moments: what was acknowledged stays, and every reader sees one sequence."""

import asyncio
import random
from dataclasses import replace

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.model.ids import PChannelName, TimeTick
from broker.model.message import Appended
from broker.model.position import TimeTickGt
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import Fault, MemoryWal
from tests.broker.node.world import OTHER, PCHANNEL, Reader, World, message, running_node

SMALL_TAIL = NodeLimits(tail_bytes_max=4_000, tail_age_s=0.5, read_ahead_bytes_max=70_000)
VICTIMS = ("appender", "time_tick", "scanners/scanner-1", "scanners/scanner-2", "scanners")


async def produce(
    world: World, name: PChannelName, rng: random.Random, acked: dict[bytes, Appended]
) -> None:
    """Append batches of unique texts; what is not acknowledged is not retried."""
    for batch in range(40):
        texts = [f"{rng.getrandbits(64)}/{batch}/{each}" for each in range(rng.randint(1, 8))]
        sent = [
            replace(message(text, shard=rng.randrange(3)), vchannel=f"{name}_7v{rng.randrange(3)}")
            for text in texts
        ]
        outcomes = await world.append(*sent, name=name)
        for each, outcome in zip(sent, outcomes, strict=True):
            if isinstance(outcome, Appended):
                acked[each.body] = outcome
        await world.clock.sleep(rng.random() * 0.02)


async def kill_often(world: World, rng: random.Random, kills: int) -> None:
    for _ in range(kills):
        await world.clock.sleep(rng.random() * 0.3)
        try:
            world.system.kill(world.path(rng.choice(VICTIMS)))
        except ActorError:
            continue  # it is down already


async def read_all(world: World, reader: Reader, rng: random.Random, done: asyncio.Event) -> None:
    while not done.is_set():
        await reader.pull(rng.choice((1, 200, 5_000, 1 << 20)))
        await world.clock.sleep(rng.random() * rng.choice((0.0, 0.01, 0.3)))


def assert_one_sequence(reader: Reader, whole: Reader) -> None:
    assert reader.messages == whole.messages
    ticks = [event.tick for event in reader.messages]
    assert ticks == sorted(set(ticks))
    assert [event.tick for event in reader.events] == sorted(e.tick for e in reader.events)


@pytest.mark.parametrize("seed", range(40))
def test_acknowledged_messages_stay_and_readers_see_one_sequence(seed: int) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)

        async def pause() -> None:
            await asyncio.sleep(rng.random() * 0.01)

        def fault(_channel: object, _records: object) -> Fault | None:
            if rng.random() < 0.01:
                return rng.choice((Fault.LOST, Fault.KEPT))
            return None

        wal = MemoryWal(segment_bytes=3_000, pause=pause, fault_of=fault)
        async with running_node(
            wal, SMALL_TAIL, seed=seed, oracle_pause_s=lambda: rng.random() * 0.002
        ) as world:
            await asyncio.gather(world.assign(), world.assign(OTHER))
            acked: dict[bytes, Appended] = {}
            readers, done = [Reader(world), Reader(world)], asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                for reader in readers:
                    tasks.create_task(read_all(world, reader, rng, done))
                producers = [
                    tasks.create_task(produce(world, PCHANNEL, rng, acked)) for _ in range(2)
                ]
                other: dict[bytes, Appended] = {}
                tasks.create_task(produce(world, OTHER, rng, other))
                await kill_often(world, rng, 12)
                for producer in producers:
                    await producer
                done.set()
            whole = Reader(world)
            newest = (await world.offsets()).next_id - 1
            await whole.read_until(newest)
            stored = {each.body: each for each in whole.messages}
            for body, outcome in acked.items():
                assert (stored[body].id, stored[body].tick) == (outcome.id, outcome.tick)
            assert len(stored) == len(whole.messages)
            terms = [each.term for each in whole.events]
            assert terms == sorted(terms)
            for reader in readers:
                await reader.read_until(newest)
                assert_one_sequence(reader, whole)

    run_seeded(seed, scenario)


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_appender_restarts_at_the_next_term_and_others_do_not_notice(seed: int) -> None:
    async def scenario() -> None:
        async with running_node(seed=seed) as world:
            await world.assign()
            await world.assign(OTHER)
            await world.append(message("before"))
            other = await world.locate(OTHER)
            world.system.kill(world.path("appender"))
            found = await world.locate(PCHANNEL, 2)
            assert found.channel.term == 2
            await world.append(message("after"))
            assert (await world.locate(OTHER)).appender == other.appender
            assert ("opened", PCHANNEL, 2) in world.observer.events
            reader = Reader(world, filters=(TimeTickGt(TimeTick(0)),))
            await reader.read_until((await world.offsets()).next_id - 1)
            assert [m.body for m in reader.messages] == [b"before", b"after"]

    run_seeded(seed, scenario)


def test_a_channel_that_is_killed_repeatedly_still_comes_back() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            for _ in range(60):
                await world.locate()
                world.system.kill(world.path("appender"))
                await world.clock.sleep(0.01)
            (outcome,) = await world.append(message("still here"))
            assert isinstance(outcome, Appended)

    run_seeded(1, scenario)


@pytest.mark.parametrize("seed", range(10))
def test_a_node_that_dies_whole_opens_its_channels_at_the_next_term_and_can_be_assigned_again(
    seed: int,
) -> None:
    async def scenario() -> None:
        async with running_node(seed=seed) as world:
            await world.assign()
            (outcome,) = await world.append(message("before"))
            world.system.kill("/root/node")
            assert (await world.locate(term=2)).channel.term == 2
            assert await world.assign(term=3) is None
            reader = Reader(world)
            assert isinstance(outcome, Appended)
            await reader.read_until(outcome.id)
            assert [m.body for m in reader.messages] == [b"before"]

    run_seeded(seed, scenario)
