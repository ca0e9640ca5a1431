"""Random kills and moves under members of a group, against a naive list of what is acknowledged."""

import asyncio
import random

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.ids import TimeTick
from broker.model.message import Appended, Delivered
from broker.node.group_messages import (
    AckMessages,
    CreateGroup,
    GroupJoined,
    JoinGroup,
    LeasedMessages,
    NackMessages,
    OpenGroup,
    TakeMessages,
)
from broker.node.scanner_messages import CloseScanner
from tests.broker.core.log.singly import each_of
from tests.broker.node.world import PCHANNEL, World, message, running_node

VCHANNEL = f"{PCHANNEL}_7v0"
KEY = GroupKey(VCHANNEL, "workers")
LEASE_MS = 3000
MESSAGES = 60
ASK_S = 8.0


class History:
    """What members saw, in the order in which it happened."""

    def __init__(self) -> None:
        self.appended: set[str] = set()
        self.acked: set[str] = set()
        """Those whose acknowledgement was answered."""
        self.doubtful: set[str] = set()
        """Those whose acknowledgement was sent, and the answer lost: they may come again or not."""
        self.after_ack: list[str] = []
        self.deliveries = 0

    def came(self, texts: list[str]) -> None:
        self.deliveries += len(texts)
        self.after_ack += [it for it in texts if it in self.acked]


async def ask_keeper(world: World, request):  # type: ignore[no-untyped-def]
    while True:
        keeper = (await world.locate()).groups.keeper
        if keeper is not None:
            try:
                answer = await keeper.ask(request, deadline_s=ASK_S)
            except ActorError:
                answer = None
            if answer is not None and not isinstance(answer, Refusal):
                return answer
        await world.clock.sleep(0.1)


async def member(world: World, history: History, rng: random.Random) -> None:
    """Join, work, come back after each death; for ever."""
    while True:
        group = await ask_keeper(world, OpenGroup(KEY))
        try:
            joined = await group.ask(JoinGroup("m"), deadline_s=ASK_S)
            assert isinstance(joined, GroupJoined), joined
            while True:
                await work(world, group, joined.member, history, rng)
        except ActorError:
            await world.clock.sleep(0.2)


async def work(  # type: ignore[no-untyped-def]
    world: World, group, number: int, history: History, rng: random.Random
) -> None:
    """Take one lease, and acknowledge it, a part of it, or nothing."""
    size = rng.choice([1, 20, 1000])
    leased = await group.ask(TakeMessages(number, size), deadline_s=30)
    if isinstance(leased, Refusal):
        raise ActorError(leased.cause)
    assert isinstance(leased, LeasedMessages)
    found = [it for it in each_of(leased.items) if isinstance(it, Delivered)]
    history.came([it.body.decode() for it in found])
    if not found:
        return
    await world.clock.sleep(rng.choice([0.0, 0.1, 4.0]))
    chosen = found if rng.random() < 0.7 else found[:1]
    spans = tuple(TickSpan(TimeTick(it.tick - 1), it.tick) for it in chosen)
    if rng.random() < 0.15:
        await group.ask(NackMessages(number, leased.lease, spans, 200), deadline_s=ASK_S)
        return
    whole = len(chosen) == len(found)
    texts = {it.body.decode() for it in chosen}
    history.doubtful |= texts
    ack = AckMessages(number, leased.lease, () if whole else spans)
    answer = await group.ask(ack, deadline_s=40)
    if answer is None:
        history.acked |= texts


async def producer(world: World, history: History, rng: random.Random) -> None:
    number = 0
    while number < MESSAGES:
        texts = [f"m{number + it}" for it in range(rng.randrange(1, 4))]
        outcomes = await world.append(*[message(it) for it in texts])
        stored = [it for it, end in zip(texts, outcomes, strict=True) if isinstance(end, Appended)]
        history.appended |= set(stored)
        number += len(texts)
        await world.clock.sleep(rng.choice([0.0, 0.05, 0.5]))


async def killer(world: World, rng: random.Random, kills: int) -> None:
    term = 1
    for _ in range(kills):
        await world.clock.sleep(rng.uniform(0.1, 3.0))
        paths = [it.path for it in world.system.statistics() if "/log/" in it.path]
        wanted = ["/appender", "/group_keeper", "/groups/", "/scanners/", "/recovery"]
        kind = rng.choice([*wanted, "move"])
        if kind == "move":
            term += 100
            await world.remove(term=term)
            await world.assign(term=term + 1)
            continue
        found = [it for it in paths if kind in it]
        if found:
            world.system.kill(rng.choice(found))


@pytest.mark.parametrize("seed", range(25))
def test_whatever_dies_all_comes_and_what_is_acknowledged_never_again(seed: int) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)
        history = History()
        async with running_node(seed=seed) as world:
            await world.assign()
            await ask_keeper(world, CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=True))
            async with asyncio.TaskGroup() as tasks:
                members = [
                    tasks.create_task(member(world, history, random.Random(f"{seed} {it}")))
                    for it in range(3)
                ]
                await asyncio.gather(
                    producer(world, history, rng), killer(world, random.Random(seed + 1), 8)
                )
                deadline_s = world.clock.monotonic_s() + 600
                while not history.appended <= history.acked | history.doubtful:
                    assert world.clock.monotonic_s() < deadline_s, history.appended - history.acked
                    await world.clock.sleep(1)
                await until_floor_passes(world, deadline_s)
                for each in members:
                    each.cancel()
        assert history.after_ack == []
        assert history.deliveries >= len(history.appended)

    run_seeded(seed, scenario)


async def until_floor_passes(world: World, deadline_s: float) -> None:
    """Until nothing is left: whatever is not acknowledged would hold the floor."""
    end = (await world.offsets()).closed_tick
    while True:
        view = await ask_keeper(world, CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=True))
        newest = max([it.upto for it in view.group.acked], default=view.group.floor)
        if not view.group.acked and not any(it.leases for it in view.members):
            return
        assert world.clock.monotonic_s() < deadline_s, (view.group.floor, newest, end)
        await world.clock.sleep(1)


def test_a_reader_that_closes_by_itself_is_replaced() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await ask_keeper(world, CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=True))
            group = await ask_keeper(world, OpenGroup(KEY))
            joined = await group.ask(JoinGroup("m"), deadline_s=ASK_S)
            for text in ("a", "b"):
                await world.append(message(text))
                leased = await group.ask(TakeMessages(joined.member, 1000), deadline_s=30)
                assert [it.record.body for it in leased.items] == [text.encode()]
                for it in world.system.statistics():
                    if "/scanners/" in it.path:
                        world.system.find(it.path).tell(CloseScanner())
                await world.clock.sleep(1)

    run_seeded(1, scenario)
