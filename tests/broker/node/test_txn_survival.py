"""Kills amid transactions, at seeded moments: every committed one whole, every other one absent."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.core.txn.txn_limits import TxnLimits
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, TxnId
from broker.model.message import AppendedInTxn, Delivered, DeliveredInTxn, NewMessage
from broker.model.txn import TxnContext
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import Fault, MemoryWal
from tests.broker.node.world import PCHANNEL, Reader, World, message, running_node

LIMITS = NodeLimits(
    tail_bytes_max=3_000,
    tail_age_s=0.4,
    txns=TxnLimits(keepalive_default_ms=400),
    txn_finish_s=0.5,
)
VICTIMS = ("appender", "appender", "time_tick", "scanners/scanner-1", "txn_monitor", "transactions")
GONE = (StreamingCode.TRANSACTION_EXPIRED, StreamingCode.INVALID_TRANSACTION_STATE)


@dataclass
class Answers:
    """What the clients know in the end: bodies of committed ones, and those that must not be."""

    committed: list[tuple[list[bytes], set[bytes]]] = field(default_factory=list)
    """Acknowledged bodies in their order, and those of unknown outcome."""
    dead: set[bytes] = field(default_factory=set)
    plain: list[bytes] = field(default_factory=list)


async def say(world: World, new: NewMessage) -> AppendedInTxn | Refusal:
    """Repeat what may be repeated until the log answers."""
    while True:
        (outcome,) = await world.append(new)
        if isinstance(outcome, AppendedInTxn) or outcome_is_final(outcome):
            assert isinstance(outcome, AppendedInTxn | Refusal)
            return outcome
        await world.clock.sleep(0.01)


def outcome_is_final(outcome: object) -> bool:
    return isinstance(outcome, Refusal) and outcome.code in GONE


async def one_txn(world: World, rng: random.Random, got: Answers) -> None:
    shard = rng.randrange(2)
    new = message("begin", shard, 900, txn=TxnContext(TxnId(0), 0))
    begun = await say(world, new)
    assert isinstance(begun, AppendedInTxn)
    sure: list[bytes] = []
    maybe: set[bytes] = set()
    for number in range(rng.randint(0, 5)):
        body = message(f"{begun.txn.id}/{number}", shard, txn=begun.txn)
        (outcome,) = await world.append(body)
        if isinstance(outcome, AppendedInTxn):
            sure.append(body.body)
        else:
            maybe.add(body.body)
        pause_s = 1.0 if rng.random() < 0.05 else rng.random() * 0.05
        await world.clock.sleep(pause_s)
    kind = rng.choice((901, 901, 901, 902))
    ended = await say(world, message("end", shard, kind, txn=begun.txn))
    if kind == 901 and isinstance(ended, AppendedInTxn):
        got.committed.append((sure, maybe))
    else:
        got.dead |= {*sure, *maybe}


async def transact(world: World, rng: random.Random, got: Answers) -> None:
    for _ in range(8):
        await one_txn(world, rng, got)


async def append_plain(world: World, rng: random.Random, got: Answers) -> None:
    for number in range(60):
        kind = 6 if rng.random() < 0.05 else 2
        new = message(f"plain/{number}", rng.randrange(2), kind)
        (outcome,) = await world.append(new)
        if not isinstance(outcome, Refusal):
            got.plain.append(new.body)
        await world.clock.sleep(rng.random() * 0.03)


async def read_all(world: World, reader: Reader, rng: random.Random, done: asyncio.Event) -> None:
    while not done.is_set():
        await reader.pull(rng.choice((1, 100, 400, 1 << 20)))
        await world.clock.sleep(rng.random() * rng.choice((0.0, 0.01, 0.2)))


async def kill_often(world: World, rng: random.Random, kills: int) -> None:
    for _ in range(kills):
        await world.clock.sleep(rng.random() * 0.2)
        victim = rng.choice(VICTIMS)
        try:
            world.system.kill(world.path(victim))
        except ActorError:
            continue  # it is down already


def transactions(messages: list[Delivered]) -> list[list[Delivered]]:
    """The members between each begin and its commit; nothing else may stand between them."""
    found: list[list[Delivered]] = []
    open_ = False
    for each in messages:
        if isinstance(each, DeliveredInTxn) and each.begins is not None:
            assert not open_
            found.append([])
            open_ = True
        elif isinstance(each, DeliveredInTxn):
            assert open_
            found[-1].append(each)
        elif open_:
            assert each.body == b"end"
            assert {it.tick for it in found[-1]} <= {each.tick}
            open_ = False
    assert not open_
    return found


@pytest.mark.parametrize("seed", range(60))
def test_transactions_are_whole_or_absent_for_readers_before_during_and_after(seed: int) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)

        async def pause() -> None:
            await asyncio.sleep(rng.random() * 0.01)

        def fault(_channel: object, _records: object) -> Fault | None:
            return rng.choice((Fault.LOST, Fault.KEPT)) if rng.random() < 0.01 else None

        wal = MemoryWal(segment_bytes=3_000, pause=pause, fault_of=fault)
        async with running_node(wal, LIMITS, seed=seed) as world:
            await world.assign()
            got, done = Answers(), asyncio.Event()
            before, during = Reader(world), Reader(world)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(read_all(world, before, rng, done))
                works = [tasks.create_task(transact(world, rng, got)) for _ in range(3)]
                works.append(tasks.create_task(append_plain(world, rng, got)))
                await kill_often(world, rng, 5)
                tasks.create_task(read_all(world, during, rng, done))
                await kill_often(world, rng, 5)
                for work in works:
                    await work
                done.set()
            after = Reader(world)
            newest = (await world.offsets()).next_id - 1
            for reader in (before, during, after):
                await reader.read_until(newest)
            assert before.messages == during.messages == after.messages
            check(got, after.messages)
            await until_nothing_is_open(world)

    run_seeded(seed, scenario)


def check(got: Answers, messages: list[Delivered]) -> None:
    seen = {each.body for each in messages}
    assert not seen & got.dead
    assert seen >= {*got.plain}
    found = [[each.body for each in bodies] for bodies in transactions(messages)]
    assert len(found) == len(got.committed)
    bodies = {body for own in found for body in own}
    for sure, maybe in got.committed:
        assert bodies >= {*sure}
        own = [it for it in found if {*it} & {*sure, *maybe}]
        assert len(own) <= 1
        assert all([body for body in it if body not in maybe] == sure for it in own)


async def until_nothing_is_open(world: World, name: PChannelName = PCHANNEL) -> None:
    """Forgotten ones expire, and no actor stays behind."""
    while True:
        entries = {it.path: it for it in world.system.statistics()}
        left = [path for path in entries if "/transactions/" in path]
        appender = entries.get(world.path("appender", name))
        if not left and appender is not None and appender.extra.get("open_txns") == 0:
            return
        await world.clock.sleep(0.2)


def test_an_abandoned_transaction_expires_and_releases_the_last_confirmed_id() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS) as world:
            await world.assign()
            begun = await say(world, message("b", 0, 900, txn=TxnContext(TxnId(0), 0)))
            assert isinstance(begun, AppendedInTxn)
            (held,) = await world.append(message("held"))
            assert not isinstance(held, Refusal)
            assert held.last_confirmed_id == begun.id
            await until_nothing_is_open(world)
            (free,) = await world.append(message("free"))
            assert not isinstance(free, Refusal)
            assert free.last_confirmed_id == free.id

    run_seeded(1, scenario)


def test_a_channel_that_is_removed_waits_for_open_transactions_but_begins_none() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            located = await world.locate()
            begun = await say(world, message("b", 0, 900, txn=TxnContext(TxnId(0), 0)))
            assert isinstance(begun, AppendedInTxn)
            async with asyncio.TaskGroup() as tasks:
                removal = tasks.create_task(world.remove())
                await world.clock.sleep(0.5)
                late = await say(world, message("b", 0, 900, txn=TxnContext(TxnId(0), 0)))
                assert isinstance(late, Refusal)
                assert late.code is StreamingCode.TRANSACTION_EXPIRED
                assert not removal.done()
                ended = await say(world, message("end", 0, 901, txn=begun.txn))
                assert isinstance(ended, AppendedInTxn)
                assert await removal is None
            assert located.channel.term == 1

    run_seeded(2, scenario)


def test_a_transaction_continues_with_the_next_owner() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            begun = await say(world, message("b", 0, 900, txn=TxnContext(TxnId(0), 0)))
            assert isinstance(begun, AppendedInTxn)
            await world.append(message("one", 0, txn=begun.txn))
            await world.remove()
            await world.assign(term=5)
            await world.append(message("two", 0, txn=begun.txn))
            ended = await say(world, message("end", 0, 901, txn=begun.txn))
            world.system.kill(world.path("appender"))
            await world.locate(term=6)
            assert await say(world, message("end", 0, 901, txn=begun.txn)) == ended
            reader = Reader(world)
            await reader.read_until((await world.offsets()).next_id - 1)
            assert [each.body for each in reader.messages] == [b"b", b"one", b"two", b"end"]
            assert {each.term for each in reader.messages} == {1, 5}

    run_seeded(3, scenario)
