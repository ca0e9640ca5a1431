"""Measured spans of ticks against what reading them yields, on real brokers."""

import random
from pathlib import Path

import anyio
import pytest

from broker.client import Client, InvalidArgument, Message, NoSuchCollection, Received, connect
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import ChannelNotExist
from tests.broker_process import BrokerProcess
from tests.local_broker import local_broker

NAMES = [NewVChannel(f"by-dev-rootcoord-dml_{number}_7v0") for number in range(4)]


async def fill(log: Client, rounds: int) -> None:
    """Single messages, batches, transactions, rolled back ones, and broadcasts."""
    chance = random.Random(5)
    for _ in range(rounds):
        name = chance.choice(NAMES)
        what = chance.randrange(5)
        if what == 0:
            await log.raw_append(name, Message(b"x" * chance.randrange(1, 300)))
        elif what == 1:
            await log.append_batch(name, [b"y" * 50] * chance.randrange(1, 200))
        elif what == 2:
            async with log.txn(name) as txn:
                for _ in range(chance.randrange(1, 5)):
                    await txn.append(b"z" * 70)
        elif what == 3:
            try:
                async with log.txn(name) as txn:
                    await txn.append(b"never")
                    raise LookupError
            except LookupError:
                pass
        else:
            await log.broadcast.append(chance.sample(NAMES, 2), b"everywhere")


async def everything(log: Client, until: int) -> list[Received]:
    found: list[Received] = []
    for name in NAMES:
        cut = await log.cut(name, tick=until)
        found += [it async for it in log.read(name, until=cut).messages()]
    return sorted(found, key=lambda it: it.tick)


async def check(log: Client, after: int, until: int, rows_max: int) -> int:
    """The choice, after comparing all that is told with what is read."""
    rows = [it for it in await everything(log, until) if it.tick > after]
    measure = await log.measure(NAMES, after=after, until=until, rows_max=rows_max)
    tick = measure.choice.tick
    assert after < tick <= until
    assert measure.choice.rows >= sum(it.tick <= tick for it in rows)
    for name, steps in measure.steps.items():
        for step in steps:
            own = [it for it in rows if it.vchannel == name and it.tick <= step.tick]
            assert step.rows == len(own)
            assert step.bytes >= sum(len(it.payload) for it in own)
    taken = [it for it in rows if it.tick <= tick]
    left = {it.broadcast_id for it in rows if it.tick > tick} - {None}
    assert not left & {it.broadcast_id for it in taken}, "no broadcast is split"
    for name in NAMES:
        spans = measure.ranges(name, 3)
        assert (spans[0][0], spans[-1][1], len(spans) <= 3) == (after, tick, True)
    return tick


async def go_through(log: Client, until: int, rows_max: int) -> list[int]:
    ticks = [0]
    while ticks[-1] < until:
        ticks.append(await check(log, ticks[-1], until, rows_max))
    return ticks


async def test_what_is_measured_is_what_is_read_from_memory_and_from_files(
    tmp_path: Path,
) -> None:
    settings = {"pchannels": 4, "tail_bytes_max": 4096}
    async with (
        local_broker(tmp_path / "data", **settings) as broker,
        connect(broker.address) as log,
    ):
        await fill(log, 60)
        until = (await log.cut(NAMES)).tick
        await fill(log, 5)
        ticks = await go_through(log, until, 300)
        assert len(ticks) > 3
        whole = await log.measure(NAMES, after=0, until=until)
        assert (whole.choice.tick, whole.exact) == (until, until)
        rows = [it for it in await everything(log, until) if it.vchannel in NAMES]
        assert whole.choice.rows == len(rows)
        some = await log.measure(NAMES, after=0, until=until, bytes_max=4000)
        assert some.choice.bytes <= 4000
        (one,) = (await log.measure(NAMES[:1], after=until - 1, until=until)).steps.values()
        assert all(it.first_tick == until for it in one)


async def test_without_a_limit_all_is_measured_however_often_that_must_be_asked(
    tmp_path: Path,
) -> None:
    """One answer looks at so many records of all pchannels together: 64 have 4,096 each."""
    names = [NewVChannel(f"by-dev-rootcoord-dml_{number}_7v0") for number in range(64)]
    async with local_broker(tmp_path, pchannels=64) as broker, connect(broker.address) as log:

        async def append() -> None:
            for _ in range(100):
                await log.append_batch(names[0], [b"a record"], durability="memory")

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(append)
        await log.append(names[1], b"behind them")
        until = (await log.cut(names)).tick
        found = await log.measure(names, after=0, until=until)
        assert (found.choice.tick, found.exact, found.choice.rows) == (until, until, 5001)
        ends = {name: steps[-1].rows for name, steps in found.steps.items() if steps}
        assert ends == {names[0]: 5000, names[1]: 1}
        assert found.ranges(names[0], 3)[-1][1] == until


async def test_copies_that_came_to_a_vchannel_at_once_and_lie_in_one_record_are_seen(
    tmp_path: Path,
) -> None:
    chance = random.Random(3)
    async with (
        local_broker(tmp_path / "data", pchannels=4) as broker,
        connect(broker.address) as log,
    ):
        for _ in range(6):
            async with anyio.create_task_group() as tasks:
                for _ in range(12):
                    tasks.start_soon(log.broadcast.append, chance.sample(NAMES, 2), b"at once")
        until = (await log.cut(NAMES)).tick
        for rows_max in (1, 7, 20):
            assert (await go_through(log, until, rows_max))[-1] == until


async def test_each_invalid_request_has_its_error(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", pchannels=1) as broker,
        connect(broker.address) as log,
    ):
        until = (await log.cut(NAMES[0])).tick
        for span in ((until, until), (until, until - 1), (-1, until), (0, 1 << 63)):
            with pytest.raises(InvalidArgument, match="span"):
                await log.measure(NAMES[0], after=span[0], until=span[1])
        with pytest.raises(InvalidArgument, match="ahead"):
            await log.measure(NAMES[0], after=0, until=until + (60_000 << 18))
        with pytest.raises(InvalidArgument, match="at least one"):
            await log.measure([], after=0, until=until)
        with pytest.raises(InvalidArgument, match="-1"):
            await log.measure(NAMES[0], after=0, until=until, rows_max=-1)
        with pytest.raises(NoSuchCollection):
            await log.measure("nowhere", after=0, until=until)
        with pytest.raises(ChannelNotExist):
            await log.measure(NAMES[1], after=0, until=until)


async def test_the_owners_of_a_cluster_of_processes_answer_together(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="4") as broker:
        async with connect(broker.address) as log:
            await fill(log, 40)
            until = (await log.cut(NAMES)).tick
            assert len(await go_through(log, until, 200)) > 2
