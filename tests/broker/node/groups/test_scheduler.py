"""Delayed messages of a vchannel: each is released once, in order, whatever dies."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.codec.stored_times import released_message
from broker.core.groups.schedule_name import SCHEDULE
from broker.model.batch import BatchPart, Codec, NewBatch
from broker.model.groups.consumer_group import GroupKey
from broker.model.groups.delivery_times import ReleasedMessage
from broker.model.message import GROUP_CHANGE, RELEASED, Appended, MessageType
from broker.model.record import Record
from broker.node.group_messages import OpenSchedule
from broker.node.groups.due_messages import DueMessages
from broker.node.groups.scheduler import FLOOR_S
from schemas.batches import shared_properties
from schemas.packing import pack
from schemas.stored import payload_of
from tests.broker.node.groups.test_group_survival import killer
from tests.broker.node.space.test_disk_watch import FULL, RoomFake
from tests.broker.node.test_truncation import LIMITS, HoldsFake, retaining
from tests.broker.node.world import PCHANNEL, World, message, running_node

VCHANNEL = f"{PCHANNEL}_7v0"
Due = tuple[int, int]


def delayed(texts: Sequence[str], at_ms: int, codec: Codec = Codec.NONE) -> NewBatch:
    payloads = [it.encode() for it in texts]
    sizes = tuple(map(len, payloads))
    properties = shared_properties([("_t", "2"), ("_deliver_at", str(at_ms))])
    body = b"".join(payloads)
    packed = pack(codec, body) if codec else body
    part = BatchPart(properties, codec)
    return NewBatch(VCHANNEL, MessageType.INSERT, packed, len(body), sizes=sizes, part=part)


async def open_schedule(world: World) -> None:
    while True:
        keeper = (await world.locate()).groups.keeper
        if keeper is not None:
            try:
                if await keeper.ask(OpenSchedule(VCHANNEL), deadline_s=8) is None:
                    return
            except ActorError:
                pass
        await world.clock.sleep(0.1)


async def stored(world: World) -> list[Record]:
    """Every record of the log."""
    while (opened := world.node.open_channels.find(PCHANNEL)) is None:
        await world.clock.sleep(0.1)
    found: list[Record] = []
    first_id = opened.log.bounds().first_id
    while (next_id := found[-1].next_id if found else first_id) < opened.tail.next_id:
        found += await opened.log.read(next_id, 1 << 20)
    return found


async def releases(world: World) -> list[tuple[int, int, int, str]]:
    """Of each copy its tick in ms, and of its message the due time, the id and the text."""
    found = []
    for record in await stored(world):
        for each in record.messages() if record.kind == RELEASED else ():
            of = released_message(each.body)
            found.append((each.tick >> 18, of.at_ms, of.id, payload_of(each.body).decode()))
    return found


async def until_released(world: World, count: int) -> list[tuple[int, int, int, str]]:
    deadline_s = world.clock.monotonic_s() + 600
    while len(found := await releases(world)) < count:
        assert world.clock.monotonic_s() < deadline_s, f"{len(found)} of {count}"
        await world.clock.sleep(1)
    return found


def check(found: Sequence[tuple[int, int, int, str]], wanted: dict[Due, str]) -> None:
    assert {(at_ms, id): text for _, at_ms, id, text in found} == wanted
    order = [(at_ms, id) for _, at_ms, id, _ in found]
    assert order == sorted(set(order)), "not in order of time, or twice"
    assert all(tick_ms >= at_ms for tick_ms, at_ms, _, _ in found), "released too early"


@pytest.mark.parametrize("seed", range(25))
def test_whatever_dies_each_delayed_message_is_released_once_in_order_of_time(seed: int) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)
        wanted: dict[Due, str] = {}
        async with running_node(seed=seed) as world:
            await world.assign()
            await open_schedule(world)

            async def produce() -> None:
                for number in range(40):
                    await world.append(message(f"plain {number}"))
                    at_ms = world.clock.wall_ms() + rng.randrange(500, 15_000)
                    texts = [f"{number}.{it}" for it in range(rng.randrange(1, 4))]
                    (outcome,) = await world.append(delayed(texts, at_ms))
                    if isinstance(outcome, Appended) and outcome.tick < at_ms << 18:
                        ids = range(outcome.id, outcome.id + len(texts))
                        wanted.update({(at_ms, id): it for id, it in zip(ids, texts, strict=True)})
                    await world.clock.sleep(rng.choice([0.0, 0.05, 0.7]))

            await asyncio.gather(produce(), killer(world, random.Random(seed + 1), 10))
            assert wanted
            # An append whose answer was lost may be stored all the same.
            found = await until_released(world, len(wanted))
            await world.clock.sleep(30)
            found = await releases(world)
            known = {(at_ms, id): text for _, at_ms, id, text in found}
            assert wanted.items() <= known.items()
            check(found, known)

    run_seeded(seed, scenario)


def test_a_packed_batch_is_released_in_the_order_of_its_messages() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await open_schedule(world)
            at_ms = world.clock.wall_ms() + 5000
            texts = [f"{it:04}" for it in range(2000)]
            (outcome,) = await world.append(delayed(texts, at_ms, Codec.LZ4))
            assert isinstance(outcome, Appended)
            found = await until_released(world, len(texts))
            check(found, {(at_ms, outcome.id + it): text for it, text in enumerate(texts)})
            assert [text for *_, text in found] == texts

    run_seeded(0, scenario)


def test_the_floor_of_a_schedule_follows_its_oldest_message() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await open_schedule(world)
            (first,) = await world.append(delayed(["a"], world.clock.wall_ms() + 200_000))
            assert isinstance(first, Appended)
            await world.clock.sleep(100)
            groups = (await world.locate()).groups
            (state,) = groups.table.groups.values()
            assert state.floor == first.tick - 1
            assert groups.scheduled == {VCHANNEL: 1}
            await world.clock.sleep(200)
            assert state.floor > first.tick
            assert groups.scheduled == {VCHANNEL: 0}
            assert len(await releases(world)) == 1

    run_seeded(0, scenario)


def test_a_schedule_of_a_quiet_vchannel_holds_nothing_back_of_the_log_it_shares() -> None:
    async def scenario() -> None:
        limits = replace(LIMITS, hold_bytes_max=1 << 30)
        async with retaining(HoldsFake(), limits) as world:
            await world.assign()
            await open_schedule(world)
            await world.append(delayed(["a"], world.clock.wall_ms() + 1000))
            await until_released(world, 1)
            await world.clock.sleep(2 * FLOOR_S)  # it writes what it has read
            for _ in range(60):
                await world.append(message("x" * 100, shard=1))
            await world.clock.sleep(2 * FLOOR_S)
            opened = world.node.open_channels.find(PCHANNEL)
            assert opened is not None
            floor = opened.groups.table.groups[GroupKey(VCHANNEL, SCHEDULE)].floor
            assert floor >= opened.log.segments()[-1].last_tick
            assert (await world.offsets()).first_id > 50
            # Once for each segment: it is in the newest one now.
            next_id = opened.tail.next_id
            await world.clock.sleep(20 * FLOOR_S)
            kinds = {it.kind for it in await stored(world) if it.base_id >= next_id}
            assert GROUP_CHANGE not in kinds

    run_seeded(1, scenario)


def test_a_delayed_message_that_was_removed_is_left_out() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            (landed,) = await world.append(delayed(["kept", "other"], 5000))
            assert isinstance(landed, Appended)
            opened = world.node.open_channels.find(PCHANNEL)
            assert opened is not None
            due = [ReleasedMessage(4000, 0), ReleasedMessage(5000, landed.id)]
            last, bodies = await DueMessages(opened, world.node.headers).copies(due)
            assert last == due[-1]
            assert [payload_of(it) for it in bodies] == [b"kept"]

    run_seeded(0, scenario)


def test_a_new_life_remembers_only_what_waits() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await open_schedule(world)
            await world.append(delayed(["far"], world.clock.wall_ms() + 10_000_000))
            rounds, count = 12, 50
            texts = [f"{it:08_}" * 1000 for it in range(count)]
            for number in range(1, rounds + 1):
                await world.append(delayed(texts, world.clock.wall_ms() + 500))
                await until_released(world, number * count)
            assert await world.remove(term=5) is None
            assert await world.assign(term=6) is None
            most = 0
            for _ in range(100):
                for _ in range(100):
                    await asyncio.sleep(0)
                    opened = world.node.open_channels.find(PCHANNEL)
                    most = max(most, opened.groups.scheduled.get(VCHANNEL, 0) if opened else 0)
                await world.clock.sleep(0.1)
            assert (await world.locate()).groups.scheduled == {VCHANNEL: 1}
            # Those of about one pull, whose copies come behind them.
            assert 1 <= most <= 5 * count
            assert len(await releases(world)) == rounds * count

    run_seeded(0, scenario)


def test_nothing_is_copied_while_the_disk_is_full() -> None:
    async def scenario() -> None:
        room = RoomFake()
        async with running_node(room=room) as world:
            await world.assign()
            await open_schedule(world)
            at_ms = world.clock.wall_ms() + 5000
            (placed,) = await world.append(delayed(["one"], at_ms))
            assert isinstance(placed, Appended)
            room.full = FULL
            await world.clock.sleep(20)
            records = await stored(world)
            assert await releases(world) == []
            await world.clock.sleep(60)
            assert await releases(world) == []
            assert len(await stored(world)) <= len(records) + 2, "but for the floor, once"
            room.full = None
            found = await until_released(world, 1)
            check(found, {(at_ms, placed.id): "one"})

    run_seeded(6, scenario)
