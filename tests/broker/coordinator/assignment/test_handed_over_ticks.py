"""A tick that an owner closes in memory lies below all that later owners write.

A real coordinator and two real nodes on one log in memory, and what strikes while a channel moves.
"""

import random
from collections.abc import Callable

import pytest

from actors.testing import VirtualClock
from broker.model.channel import Assignment
from broker.model.message import NewMessage
from tests.broker.coordinator.assignment.following import follow_until, seeded, terms_in
from tests.broker.coordinator.assignment.two_hosts import (
    NAME,
    RECONCILER,
    VICTIMS,
    Host,
    begin,
    cluster,
    kill,
)


def serves(host: Host) -> Callable[[Assignment], bool]:
    def is_there(table: Assignment) -> bool:
        rows = [row for row in table.nodes if row.channels]
        return [row.node_id for row in rows] == [host.node.node_id]

    return is_there


def test_a_coordinator_that_asks_again_waits_until_the_earlier_owner_has_closed() -> None:
    """It died when it had asked, and the owner still waits for a transaction."""

    async def scenario(clock: VirtualClock) -> None:
        async with cluster(clock) as world, world.coordinator() as system:
            table = await follow_until(system, lambda table: bool(terms_in(table)))
            first, second = world.hosts if serves(world.hosts[0])(table) else world.hosts[::-1]
            await world.pass_time(0.5)
            await first.say(begin())
            world.drain(first, system)
            await world.pass_time(0.5)
            assert first.serving is not None, "it gives the transaction its time"
            system.kill(RECONCILER)
            await follow_until(system, serves(second))
            await second.say(NewMessage(f"{NAME}_7v0", 2, b"row", 3))
            await world.pass_time(5.0)
            assert await world.broken_promises() == []
            assert first.serving is None

    seeded(71, scenario)


@pytest.mark.parametrize("seed", range(30))
def test_no_tick_is_closed_twice_whoever_dies_while_a_channel_moves(seed: int) -> None:
    async def scenario(clock: VirtualClock) -> None:
        chance = random.Random(seed)
        async with cluster(clock, seed) as world:
            for _ in range(4):
                async with world.coordinator() as system:
                    for _ in range(3):
                        await world.pass_time(chance.uniform(0.0, 1.5))
                        if chance.random() < 0.4:
                            await chance.choice(world.hosts).say(begin())
                        world.drain(chance.choice(world.hosts), system)
                        await world.pass_time(chance.choice((0.0, 0.0, 0.02, 0.1)))
                        if chance.random() < 0.6:
                            kill(chance.choice(world.hosts).system, chance.choice(VICTIMS))
                        if chance.random() < 0.4:
                            kill(system, RECONCILER)
            async with world.coordinator() as system:
                await follow_until(system, lambda table: bool(terms_in(table)))
                await world.pass_time(6.0)
                assert await world.broken_promises() == []
                assert len([it for it in world.hosts if it.serving is not None]) == 1

    seeded(seed, scenario)
