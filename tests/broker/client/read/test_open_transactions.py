"""Places to start and to stop at while transactions are open there, against one naive list."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from broker.client import Client, Cut, Txn, connect
from broker.client.cluster.targets import NewVChannel
from broker.client.read.start import Start, Until
from tests.local_broker import local_broker

VCHANNEL = NewVChannel("by-dev-rootcoord-dml_0_7v0")
STEPS = 120
OPEN_MAX = 4
WHAT = (*("begin", "plain") * 2, *("body",) * 4, "commit", "end", "cut")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of one that runs in a thread and a loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, pchannels=1)) as started,
    ):
        yield started.address


@dataclass
class Told:
    """What a reader is owed: (id where it is handed over, tick, payload), in order."""

    owed: list[tuple[int, int, bytes]] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    """Ids and ticks of everything that was written, bodies of whatever transaction too."""
    cuts: list[Cut] = field(default_factory=list)
    under_way: list[tuple[Txn, list[bytes]]] = field(default_factory=list)


async def step(log: Client, rng: random.Random, told: Told, number: int) -> None:
    what = rng.choice(
        ("begin", "begin", "body", "body", "body", "body", "plain", "plain", "commit", "end", "cut")
    )
    payload = b"%d" % number
    if what == "plain":
        landed = await log.append(VCHANNEL, payload)
        told.places.append((landed.id, landed.tick))
        told.owed.append((landed.id, landed.tick, payload))
    elif what == "cut":
        told.cuts.append(await log.cut(VCHANNEL))
    elif what == "begin" and len(told.under_way) < OPEN_MAX:
        txn = log.txn(VCHANNEL, keepalive_s=600)
        await txn.begin()
        told.under_way.append((txn, []))
    elif told.under_way and what == "body":
        txn, payloads = rng.choice(told.under_way)
        landed = await txn.append(payload)
        told.places.append((landed.id, landed.tick))
        payloads.append(payload)
    elif told.under_way:
        txn, payloads = told.under_way.pop(rng.randrange(len(told.under_way)))
        if what == "commit":
            landed = await txn.commit()
            told.places.append((landed.id, landed.tick))
            told.owed += [(landed.id, landed.tick, each) for each in payloads]
        else:
            await txn.rollback()


async def history(log: Client, rng: random.Random) -> Told:
    told = Told()
    for number in range(STEPS):
        await step(log, rng, told, number)
    left = log.txn(VCHANNEL, keepalive_s=600)  # so that one is open when it is read
    await left.begin()
    await left.append(b"never")
    return told


async def payloads(log: Client, *, start: Start = "all", until: Until = "now") -> list[bytes]:
    reader = log.read(VCHANNEL, start=start, until=until)
    return [each.payload async for each in reader.messages()]


async def in_ranges(log: Client, bounds: Sequence[int]) -> list[bytes]:
    """Range by range, as a micro-batch each; none may hold a part of a transaction."""
    found: list[bytes] = []
    for first, end in pairwise(bounds):
        found += [it.payload async for it in log.read_range(VCHANNEL, first, end).messages()]
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_from_any_tick_everything_at_it_or_later_comes_whole_and_nothing_else(
    broker: str, seed: int
) -> None:
    rng = random.Random(seed)
    async with connect(broker) as log:
        told = await history(log, rng)
        for _, tick in rng.sample(told.places, 20):
            for start in (tick, tick + 1):
                owed = [payload for _, at, payload in told.owed if at >= start]
                assert await payloads(log, start=("tick", start)) == owed
        for cut in told.cuts:
            until = [payload for _, at, payload in told.owed if at <= cut.tick]
            assert await payloads(log, until=cut) == until
            after = [payload for _, at, payload in told.owed if at > cut.tick]
            assert await payloads(log, start=cut) == after
        for one, other in pairwise(told.cuts):
            between = [each for _, at, each in told.owed if one.tick < at <= other.tick]
            assert await payloads(log, start=one, until=other) == between


@pytest.mark.parametrize("seed", [4, 5])
async def test_ranges_of_ids_give_each_transaction_once_in_the_range_of_its_commit(
    broker: str, seed: int
) -> None:
    rng = random.Random(seed)
    async with connect(broker) as log:
        told = await history(log, rng)
        held = (await log.offsets.describe([VCHANNEL]))[VCHANNEL]
        everything = [payload for _, _, payload in told.owed]
        for _ in range(6):
            inner = rng.sample(range(held.first_id + 1, held.next_id), 8)
            bounds = [held.first_id, *sorted(inner), held.next_id]
            assert await in_ranges(log, bounds) == everything
            first, end = bounds[3], bounds[7]
            owed = [payload for at, _, payload in told.owed if first <= at < end]
            assert await in_ranges(log, [first, end]) == owed
        by_bytes = [int(held.first_id)]
        while by_bytes[-1] < held.next_id:
            bytes_max = rng.randrange(1, 600)
            by_bytes.append(
                await log.offsets.advance(VCHANNEL, by_bytes[-1], held.next_id, bytes_max)
            )
        assert len(by_bytes) > 5
        assert await in_ranges(log, by_bytes) == everything
