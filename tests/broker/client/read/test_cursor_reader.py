"""Readers of named cursors against a real broker: what is committed, and what comes again."""

import gc
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker.client import Client, Message, connect
from broker.client.errors import (
    BadCommit,
    BadTarget,
    CursorWasReset,
    InvalidArgument,
    NoSuchCursor,
)
from tests.broker_process import BrokerProcess
from tests.local_broker import local_broker

SHARDS = 4
SCHEMA = pa.schema([("number", pa.int64())])


@asynccontextmanager
async def connected(folder: Path, pchannels: int = 2) -> AsyncIterator[Client]:
    async with (
        local_broker(folder / "data", pchannels=pchannels) as broker,
        connect(broker.address) as log,
    ):
        yield log


def readers(log: Client) -> list[Callable[..., Any]]:
    """The two that give out messages, of which each must do the same."""
    return [log.read, log.read_batches]


async def messages_of(scanner: Any) -> list[bytes]:
    return [it.payload async for it in scanner.messages()]


async def fill(log: Client, name: str, numbers: range) -> set[bytes]:
    """Single messages, transactions and batches on all shards."""
    vchannels = (await log.collections.get(name)).vchannels
    payloads = [b"%d" % it for it in numbers]
    third = len(payloads) // 3
    single = [Message(it, key=it) for it in payloads[:third]]
    await log.append_messages(name, single, atomic=False)
    for at in range(third, 2 * third, 7):
        together = [Message(it, key=at) for it in payloads[at : min(at + 7, 2 * third)]]
        await log.append_messages(name, together)
    for at in range(2 * third, len(payloads), 11):
        await log.append_batch(vchannels[at % len(vchannels)], payloads[at : at + 11])
    return set(payloads)


def payloads_of(batch: Any) -> list[bytes]:
    if isinstance(batch, pa.RecordBatch):
        return [b"%d" % it for it in batch.column("number").to_pylist()]
    return [it.payload for it in batch.messages]


@pytest.mark.parametrize("how", ["read", "read_batches", "read_arrow"])
async def test_commits_in_any_order_and_readers_that_crash_lose_nothing(
    tmp_path: Path, how: str
) -> None:
    chance = random.Random(7)
    async with connected(tmp_path) as log:
        rows = how == "read_arrow"
        await log.collections.create("flights", shards=SHARDS, schema=SCHEMA if rows else None)
        expected: set[bytes] = set()
        done: set[bytes] = set()
        for run in range(8):
            if run < 5:
                numbers = range(run * 200, run * 200 + 200)
                if rows:
                    for at in numbers[::10]:
                        table = pa.table({"number": list(range(at, at + 10))}, schema=SCHEMA)
                        await log.append_arrow("flights", table, key="number")
                    expected |= {b"%d" % it for it in numbers}
                else:
                    expected |= await fill(log, "flights", numbers)
            scanner = getattr(log, how)("flights", start="billing", until="now")
            held: list[Any] = []
            crashes = run < 7 and chance.random() < 0.7
            async for batch in scanner:
                held.append(batch)
                chance.shuffle(held)
                while held and chance.random() < (0.4 if crashes else 1.0):
                    one = held.pop()
                    done |= set(payloads_of(one))
                    await log.cursor("billing").commit(one)
                if crashes and chance.random() < 0.1:
                    break
            await scanner.close()
        assert done == expected
        rest = [it async for it in getattr(log, how)("flights", start="billing", until="now")]
        assert not [it for batch in rest for it in payloads_of(batch)], "all of it was committed"
        assert (await log.cursor("billing").get()).rows_behind == 0


async def test_the_closed_tick_of_a_batch_is_no_position_of_another_shard(tmp_path: Path) -> None:
    async with connected(tmp_path, pchannels=SHARDS) as log:
        flights = await log.collections.create("flights", shards=SHARDS)
        await fill(log, "flights", range(100))
        cursor = log.cursor("billing")
        for how in readers(log):
            async with how("flights", until="now") as scanner:
                batch = await anext(scanner)
                while not batch.closed_tick:
                    batch = await anext(scanner)
                own = batch.closed_tick.channels
                for tick in (batch.closed_tick, batch.closed_tick + 1, 1 + batch.closed_tick):
                    with pytest.raises(InvalidArgument, match=r"may be behind.*cursor\.commit"):
                        await cursor.move(tick, "flights")
                    with pytest.raises(BadTarget, match="may be behind"):
                        await how("flights", start=("tick", tick)).open()
                    with pytest.raises(BadTarget, match="may be behind"):
                        await cursor.reset(("tick", tick), "flights")
                await how(own[0], start=("tick", batch.closed_tick + 1)).close()
                async for _ in scanner:
                    pass
                await cursor.move(scanner.closed_tick, "flights")
                with pytest.raises(InvalidArgument, match="may be behind"):
                    await cursor.move(batch.closed_tick)
                await cursor.drop()
        alone = log.cursor("alone")
        await alone.move(batch.closed_tick, own)
        assert (await alone.get()).channels == own
        assert len(flights.vchannels) == SHARDS


async def test_a_commit_of_all_moves_shards_without_messages_too(tmp_path: Path) -> None:
    async with connected(tmp_path) as log:
        vchannels = (await log.collections.create("flights", shards=3)).vchannels
        for how in readers(log):
            name = how.__name__
            await log.append(vchannels[1], b"only here")
            cut = await log.cut("flights")
            async with how("flights", start=name, until=cut) as scanner:
                assert b"only here" in await messages_of(scanner)
                await scanner.commit()
            view = await log.cursor(name).get()
            assert view.tick == cut.tick
            assert all(at.closed == cut.tick for at in view.positions.values())
            assert (view.rows_behind, view.bytes_behind, view.exact) == (0, 0, True)
            await log.append(vchannels[0], b"behind")
            async with how("flights", start=name, until="now") as scanner:
                seen = await messages_of(scanner)
                await scanner.commit()
            assert seen == [b"behind"]
            assert (await log.cursor(name).get()).rows_behind == 0


async def test_inside_of_a_batch_the_messages_that_were_returned_are_committed(
    tmp_path: Path,
) -> None:
    async with connected(tmp_path) as log:
        (v,) = (await log.collections.create("flights", shards=1)).vchannels
        for how in readers(log):
            name = how.__name__
            await log.cursor(name).reset("latest", "flights")
            await log.append_batch(v, [b"%d" % it for it in range(5)])
            async with log.txn(v) as txn:
                for number in range(5, 10):
                    await txn.append(b"%d" % number)
            seen: list[bytes] = []
            while len(seen) < 10:
                async with how("flights", start=name) as scanner:
                    async for message in scanner.messages():
                        seen.append(message.payload)
                        await scanner.commit()
                        if len(seen) % 3 == 0 or len(seen) == 10:
                            break
            assert seen == [b"%d" % it for it in range(10)]


async def test_a_transaction_that_comes_in_parts_is_resumed_inside(tmp_path: Path) -> None:
    async with connected(tmp_path) as log:
        (v,) = (await log.collections.create("flights", shards=1)).vchannels
        payloads = [b"%02d" % it + bytes(200_000) for it in range(40)]
        async with log.txn(v) as txn:
            for payload in payloads[:20]:
                await txn.append(payload)
            await txn.append_batch(payloads[20:])
        await log.append(v, b"after")
        seen: list[bytes] = []
        parts = 0
        while b"after" not in seen:
            async with log.read_batches("flights", start="billing") as scanner:
                batch = await anext(scanner)
                while not len(batch):
                    batch = await anext(scanner)
                seen += [it.payload for it in batch.messages]
                await log.cursor("billing").commit(batch)
                parts += 1
        assert parts > 2, "the transaction came whole; make it larger"
        assert seen == [*payloads, b"after"]


async def test_two_readers_of_one_cursor_store_what_either_has_processed(tmp_path: Path) -> None:
    async with connected(tmp_path) as log:
        await log.collections.create("flights", shards=1)
        for number in range(3):
            await log.append("flights", b"%d" % number)
        cursor = log.cursor("billing")
        slow = log.read_batches("flights", start=cursor)
        fast = log.read_batches("flights", start="billing")
        first = await anext(slow)
        while not len(first):
            first = await anext(slow)
        seen = 0
        async for batch in fast:
            seen += len(batch)
            if seen == 3:
                break
        await fast.commit()
        at = (await cursor.get()).positions
        await cursor.commit(first)
        assert (await cursor.get()).positions == at, "a late commit moves nothing back"
        await slow.close()
        await fast.close()


async def test_what_cannot_be_committed_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with connected(tmp_path) as log:
        await log.collections.create("flights", shards=2, schema=SCHEMA)
        table = pa.table({"number": [1, 2, 3]}, schema=SCHEMA)
        await log.append_arrow("flights", table, key="number")
        billing, other = log.cursor("billing"), log.cursor("other")
        rows = await anext(log.read_arrow("flights", start=billing))
        plain = await anext(log.read_arrow("flights", until="now"))
        batch = await anext(log.read("flights", until="now"))
        for wrong in (rows.slice(0, 1), plain, batch.messages, None, 7, b"batch"):
            with pytest.raises(BadCommit, match=r"no part or copy.*scanner\.commit"):
                await billing.commit(wrong)
        for cursor, wrong in ((other, rows), (billing, batch)):
            with pytest.raises(BadCommit, match=f"cursor '{cursor.name}'"):
                await cursor.commit(wrong)
        with pytest.raises(BadCommit, match="has no cursor"):
            await log.read("flights").commit()
        await billing.commit(rows)
        await billing.commit(rows)
        with pytest.raises(InvalidArgument, match="'Latest' cannot name a cursor"):
            await log.read("flights", start=log.cursor("Latest")).open()
        with pytest.raises(InvalidArgument, match="'all' cannot name a cursor"):
            await log.read("flights", start=log.cursor("all")).open()


async def test_the_marks_of_rows_go_with_them(tmp_path: Path) -> None:
    async with connected(tmp_path) as log:
        await log.collections.create("flights", shards=1, schema=SCHEMA)
        await log.append_arrow("flights", pa.table({"number": [1]}, schema=SCHEMA))
        cursor = log.cursor("billing")
        scanner = log.read_arrow("flights", start=cursor, until="now")
        rows = await scanner.gathered(10, 1 << 20)
        assert cursor.rows_given.marks(rows)
        key = id(rows)
        del rows
        gc.collect()
        assert key not in cursor.rows_given._found


async def test_a_reset_or_a_drop_ends_the_commits_of_readers_from_before(tmp_path: Path) -> None:
    async with connected(tmp_path) as log:
        await log.collections.create("flights", shards=2)
        everything = await fill(log, "flights", range(60))
        cursor = log.cursor("billing")
        with pytest.raises(NoSuchCursor):
            await cursor.reset("all")
        scanner = log.read("flights", start=cursor, until="now")
        assert set(await messages_of(scanner)) == everything
        await scanner.commit()
        before = await cursor.get()
        cut = await log.cut("flights")
        late = log.read("flights", start=cursor)
        await log.append("flights", b"late")
        batch = await anext(late)
        back = await cursor.reset("all")
        assert (back.tick, back.channels) == (0, before.channels)
        with pytest.raises(CursorWasReset, match="start another reader"):
            await late.commit()
        with pytest.raises(CursorWasReset, match="start another reader"):
            await cursor.commit(batch)
        await late.close()
        again = {
            it.payload async for it in log.read("flights", start=cursor, until="now").messages()
        }
        assert again == everything | {b"late"}
        for to, expected in [
            (cut, {b"late"}),
            (("tick", cut.tick + 1), {b"late"}),
            ("latest", set[bytes]()),
            ("all", again),
        ]:
            await cursor.reset(to)  # type: ignore[arg-type]
            scanner = log.read("flights", start="billing", until="now")
            assert set(await messages_of(scanner)) == expected
        await cursor.drop()
        with pytest.raises(NoSuchCursor, match="billing"):
            await scanner.commit()
        for wrong in ("now", 7, ("id", 3), None):
            with pytest.raises(BadTarget, match="is no position"):
                await cursor.reset(wrong, "flights")  # type: ignore[arg-type]


async def test_a_cursor_of_a_collection_that_was_made_again_says_so(tmp_path: Path) -> None:
    async with connected(tmp_path) as log:
        await log.collections.create("flights", shards=2)
        async with log.read("flights", start="billing", until="now") as scanner:
            async for _ in scanner:
                pass
        await log.collections.drop("flights")
        await log.collections.create("flights", shards=2)
        await log.append("flights", b"new")
        with pytest.raises(BadTarget, match=r"no position for .*dropped and created again.*reset"):
            await log.read("flights", start="billing").open()
        await log.cursor("billing").reset("all", "flights")
        scanner = log.read("flights", start="billing", until="now")
        assert await messages_of(scanner) == [b"new"]


async def test_a_cursor_that_was_moved_by_tick_is_a_start_and_takes_commits(tmp_path: Path) -> None:
    async with connected(tmp_path) as log:
        await log.collections.create("flights", shards=2)
        await fill(log, "flights", range(30))
        cut = await log.cut("flights")
        await log.cursor("billing").move(cut.tick, "flights")
        landed = await log.append("flights", b"new", key=b"k")
        async with log.read("flights", start="billing") as scanner:
            batch = await anext(scanner)
            assert [it.payload for it in batch.messages] == [b"new"]
            await log.cursor("billing").commit(batch)
        view = await log.cursor("billing").get()
        assert view.positions[landed.vchannel].closed >= landed.tick
        assert (await log.cursor("billing").move(view.tick)).positions == view.positions


async def test_a_consumer_that_dies_and_a_broker_that_is_killed_lose_nothing(
    tmp_path: Path,
) -> None:
    chance = random.Random(3)
    process = BrokerProcess(tmp_path / "data", pchannels="2")
    try:
        expected: set[bytes] = set()
        done: set[bytes] = set()
        async with connect(process.address) as log:
            await log.collections.create("flights", shards=SHARDS)
        for run in range(4):
            async with connect(process.address) as log:
                expected |= await fill(log, "flights", range(run * 300, run * 300 + 300))
                scanner = log.read_batches("flights", start="billing", until="now")
                async for batch in scanner:
                    if chance.random() < 0.8:
                        done |= set(payloads_of(batch))
                        await log.cursor("billing").commit(batch)
                    elif chance.random() < 0.5:
                        break
                await scanner.close()
            process.kill()
            process = BrokerProcess(tmp_path / "data", pchannels="2")
        async with connect(process.address) as log:
            scanner = log.read_batches("flights", start="billing", until="now")
            async for batch in scanner:
                done |= set(payloads_of(batch))
                await scanner.commit()
            assert done == expected
            assert (await log.cursor("billing").get()).rows_behind == 0
    finally:
        process.kill()


@pytest.mark.parametrize("start", ["lastest", "Latest", "ALL", "al"])
async def test_a_misspelt_place_makes_no_cursor(tmp_path: Path, start: str) -> None:
    async with connected(tmp_path) as log:
        await log.collections.create("trains")
        for read in (log.read, log.read_batches, log.read_arrow):
            with pytest.raises(BadTarget, match="did you mean"):
                read("trains", start=start)
        assert await log.cursors.list() == []
        async with log.read("trains", start=log.cursor("lastest"), until="now"):
            assert [it.name for it in await log.cursors.list()] == ["lastest"]
