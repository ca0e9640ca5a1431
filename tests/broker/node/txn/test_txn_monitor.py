"""Each transaction is an actor under its channel, from its begin to its end, however short."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from actors import (
    Actor,
    ActorError,
    ActorStatistics,
    ChildSpec,
    Context,
    Envelope,
    Restart,
)
from actors.testing import run_seeded
from broker.core.txn.txn_limits import TxnLimits
from broker.model.ids import TxnId
from broker.model.message import AppendedInTxn
from broker.model.txn import TxnContext
from broker.node.state.node_limits import NodeLimits
from broker.node.txn.txn_monitor import TRANSACTIONS, TXN_MONITOR
from tests.broker.node.world import World, appended, message, running_node

BEGIN = TxnContext(TxnId(0), 0)


async def begin(world: World) -> TxnContext:
    (outcome,) = await world.append(message("b", 0, 900, txn=BEGIN))
    assert isinstance(outcome, AppendedInTxn), outcome
    return outcome.txn


def actors_of(world: World) -> dict[int, ActorStatistics]:
    """The actors of transactions, by the id of the transaction."""
    above = world.path(TRANSACTIONS)
    found = [it for it in world.system.statistics() if it.path.rpartition("/")[0] == above]
    return {int(it.path.rpartition("/")[2]): it for it in found}


def started(world: World) -> int:
    (monitor,) = [it for it in world.system.statistics() if it.path == world.path(TXN_MONITOR)]
    return int(monitor.extra["started"])


async def until_shown(world: World, txn: TxnContext) -> None:
    async with asyncio.timeout(60):
        while txn.id not in actors_of(world):
            await world.clock.sleep(0.001)
    assert actors_of(world)[txn.id].term == 1


async def until_actors_are(world: World, *ids: int) -> None:
    deadline_s = world.clock.monotonic_s() + 60
    while set(actors_of(world)) != set(ids):
        assert world.clock.monotonic_s() < deadline_s, actors_of(world)
        await world.clock.sleep(0.001)


def test_it_has_an_actor_from_its_begin_to_its_end_without_waiting_for_a_tick() -> None:
    async def scenario() -> None:
        async with running_node(limits=NodeLimits(tick_interval_s=1000.0)) as world:
            await world.assign()
            txn = await begin(world)
            await until_actors_are(world, txn.id)
            assert actors_of(world)[txn.id].term == 1
            assert actors_of(world)[txn.id].extra["state"] == "in flight"
            appended(await world.append(message("e", 0, 901, txn=txn)))
            await until_actors_are(world)
            assert world.clock.monotonic_s() < 100

    run_seeded(1, scenario)


@pytest.mark.parametrize("seed", range(10))
def test_every_transaction_of_a_load_was_an_actor_and_none_is_left(seed: int) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)
        async with running_node(seed=seed) as world:
            await world.assign()

            async def one() -> None:
                txn = await begin(world)
                for number in range(rng.randint(0, 3)):
                    await world.clock.sleep(rng.choice((0.0, 0.0, 0.01)))
                    appended(await world.append(message(str(number), txn=txn)))
                if rng.random() < 0.3:
                    await until_shown(world, txn)
                appended(await world.append(message("e", 0, rng.choice((901, 902)), txn=txn)))

            async def some() -> None:
                for _ in range(20):
                    await one()

            async with asyncio.timeout(600), asyncio.TaskGroup() as tasks:
                for _ in range(10):
                    tasks.create_task(some())
            async with asyncio.timeout(60):
                while started(world) < 200:
                    await world.clock.sleep(0.001)
            await until_actors_are(world)
            assert started(world) == 200

    run_seeded(seed, scenario)


def test_a_txn_monitor_whose_mailbox_overflows_asks_which_transactions_are_open() -> None:
    async def scenario() -> None:
        async with running_node(limits=NodeLimits(txns=TxnLimits(open_max=5000))) as world:
            await world.assign()
            short = await begin(world)
            await until_actors_are(world, short.id)
            busy = asyncio.Event()
            spec = ChildSpec("0", lambda: Slow(busy), restart=Restart.TRANSIENT)
            async with asyncio.TaskGroup() as tasks:  # its supervisor starts nobody else meanwhile
                tasks.create_task(world.system.start_child(world.path(TRANSACTIONS), spec))
                stays = [await begin(world) for _ in range(1100)]
                appended(await world.append(message("e", 0, 901, txn=short)))
                statistics = {it.path: it for it in world.system.statistics()}
                assert statistics[world.path(TXN_MONITOR)].shed > 0
                busy.set()
            await until_actors_are(world, *[txn.id for txn in stays])

    run_seeded(3, scenario)


class Slow(Actor[None]):
    """Starts when it is let, and is gone at once."""

    def __init__(self, until: asyncio.Event) -> None:
        self._until = until

    async def started(self, context: Context[None]) -> None:
        await self._until.wait()
        context.stop()

    async def receive(self, batch: Sequence[Envelope[None]]) -> None:
        """Nobody tells it anything."""


def test_a_txn_monitor_that_was_killed_finds_the_open_ones_again() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            one = await begin(world)
            await until_actors_are(world, one.id)
            world.system.kill(world.path(TXN_MONITOR))
            two = await begin(world)
            await until_actors_are(world, one.id, two.id)
            appended(await world.append(message("e", 0, 901, txn=one)))
            appended(await world.append(message("e", 0, 902, txn=two)))
            await until_actors_are(world)

    run_seeded(4, scenario)


@pytest.mark.parametrize("ends", [True, False])
def test_a_killed_transaction_actor_asks_the_appender_for_its_state(*, ends: bool) -> None:
    async def scenario() -> None:
        limits = NodeLimits(txns=TxnLimits(keepalive_default_ms=5_000))
        async with running_node(limits=limits) as world:
            await world.assign()
            txn = await begin(world)
            await until_actors_are(world, txn.id)
            world.system.kill(f"{world.path(TRANSACTIONS)}/{txn.id}")
            if ends:
                appended(await world.append(message("e", 0, 901, txn=txn)))
            else:
                await until_term(world, txn.id, 2)
                assert (await world.offsets()).open_txns == 1
            await until_actors_are(world)  # the other one expires
            assert (await world.offsets()).open_txns == 0

    run_seeded(5, scenario)


async def until_term(world: World, txn_id: int, term: int) -> None:
    path = f"{world.path(TRANSACTIONS)}/{txn_id}"
    deadline_s = world.clock.monotonic_s() + 60
    while world.clock.monotonic_s() < deadline_s:
        try:
            if world.system.find(path).term == term:
                return
        except ActorError:
            pass
        await world.clock.sleep(0.001)
    pytest.fail(f"{path} did not come back")
