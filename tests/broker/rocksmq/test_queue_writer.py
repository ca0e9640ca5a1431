"""Writes: calls share a sync, a failed one has no effect, a cancelled one is whole or absent."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.model.rocksmq.ordered_writes import Put
from broker.rocksmq import RocksMQ, RocksMQFailed, RocksMQFull
from broker.rocksmq import queue_writer as writing
from tests.broker.rocksmq.faulty_store import FaultyStore
from tests.broker.rocksmq.open_queues import open_on, payloads, with_group


async def held(store: FaultyStore) -> None:
    """Return when a write has begun, and waits for `store.held`."""
    assert await asyncio.to_thread(store.begun.wait, 60)


async def begin_held(mq: RocksMQ, store: FaultyStore, payload: bytes) -> "asyncio.Task[list[int]]":
    """A produce whose write hangs."""
    store.held.clear()
    store.begun.clear()
    task = asyncio.get_running_loop().create_task(mq.produce("orders", [payload]))
    await held(store)
    return task


async def begun(mq: RocksMQ, payload: bytes) -> "asyncio.Task[list[int]]":
    """A produce that waits for the next batch."""
    task = asyncio.get_running_loop().create_task(mq.produce("orders", [payload]))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def test_calls_that_wait_share_one_write(tmp_path: Path) -> None:
    store = FaultyStore()
    async with open_on(store, tmp_path) as mq:
        await with_group(mq)
        first = await begin_held(mq, store, b"first")
        writes = store.writes
        rest = [await begun(mq, b"%d" % number) for number in range(50)]
        store.held.set()
        await asyncio.gather(first, *rest)
        assert store.writes == writes + 2
        assert await payloads(mq) == [b"first", *(b"%d" % number for number in range(50))]


async def test_a_batch_ends_at_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BATCH_BYTES_MAX", 10)
    store = FaultyStore()
    async with open_on(store, tmp_path) as mq:
        await with_group(mq)
        first = await begin_held(mq, store, b"first")
        rest = [await begun(mq, bytes(size)) for size in (6, 6, 20, 4, 4)]
        store.batches.clear()
        store.held.set()
        await asyncio.gather(first, *rest)
        sizes = [
            [len(it.data) for it in batch if isinstance(it, Put) and it.key.startswith(b"data/")]
            for batch in store.batches
        ]
        assert sizes == [[5], [6], [6], [20], [4, 4]]


async def test_a_failed_write_fails_its_calls_alone_and_nothing_of_them_is_there(
    tmp_path: Path,
) -> None:
    store = FaultyStore()
    async with open_on(store, tmp_path) as mq:
        await with_group(mq)
        await mq.produce("orders", [b"before"])
        view = mq.describe_channel("orders")
        store.fail_writes = {store.writes + 1}
        failed = await asyncio.gather(
            *(mq.produce("orders", [b"lost"] * 3) for _ in range(3)), return_exceptions=True
        )
        errors = [it for it in failed if isinstance(it, RocksMQFailed)]
        assert errors
        assert len({id(it) for it in errors}) == len(errors), "each has an exception of its own"
        assert mq.describe_channel("orders").begin_id == view.begin_id
        later = [it for it in failed if not isinstance(it, BaseException)]
        ids = await mq.produce("orders", [b"after"])
        found = await mq.consume("workers", "orders", 100)
        assert [it.payload for it in found] == [b"before", *[b"lost"] * 3 * len(later), b"after"]
        assert found[-1].msg_id == ids[0]


@pytest.mark.parametrize(
    "call",
    ["create_channel", "destroy_channel", "create_group", "destroy_group", "produce", "seek",
     "commit"],
)  # fmt: skip
async def test_on_a_full_disk_each_call_is_refused_reads_go_on_and_it_works_again(
    tmp_path: Path, call: str
) -> None:
    store = FaultyStore()
    async with open_on(store, tmp_path) as mq:
        await with_group(mq)
        ids = await mq.produce("orders", [b"a", b"b"])
        await mq.consume("workers", "orders", 1)
        entries, view = dict(store.entries), mq.describe_channel("orders")
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "create_channel": lambda: mq.create_channel("new"),
            "destroy_channel": lambda: mq.destroy_channel("orders"),
            "create_group": lambda: mq.create_consumer_group("new", "orders"),
            "destroy_group": lambda: mq.destroy_consumer_group("workers", "orders"),
            "produce": lambda: mq.produce("orders", [b"c"]),
            "seek": lambda: mq.seek("workers", "orders", ids[1]),
            "commit": lambda: mq.commit("workers", "orders"),
        }
        store.full = True
        with pytest.raises(RocksMQFull, match="free some space"):
            await calls[call]()
        assert store.entries == entries
        assert mq.describe_channel("orders") == view
        assert await payloads(mq) == [b"b"]
        store.full = False
        await mq.seek("workers", "orders", ids[1])
        await calls[call]()
        if call not in ("destroy_channel", "destroy_group"):
            await mq.seek("workers", "orders", ids[0])
            wanted = [b"a", b"b", b"c"] if call == "produce" else [b"a", b"b"]
            assert await payloads(mq) == wanted


async def test_a_call_cancelled_before_its_batch_has_no_effect(tmp_path: Path) -> None:
    store = FaultyStore()
    async with open_on(store, tmp_path) as mq:
        await with_group(mq)
        first = await begin_held(mq, store, b"first")
        waiting = [await begun(mq, b"%d" % number) for number in range(3)]
        waiting[1].cancel()
        await asyncio.wait([waiting[1]])
        assert waiting[1].cancelled()
        store.held.set()
        await asyncio.gather(first, waiting[0], waiting[2])
        assert await payloads(mq) == [b"first", b"0", b"2"]


async def test_a_call_cancelled_while_its_batch_is_written_ends_at_once_and_is_whole(
    tmp_path: Path,
) -> None:
    store = FaultyStore()
    async with open_on(store, tmp_path) as mq:
        await with_group(mq)
        task = await begin_held(mq, store, b"written")
        task.cancel()
        async with asyncio.timeout(30):  # the write still hangs
            await asyncio.wait([task])
        assert task.cancelled()
        store.held.set()
        await mq.produce("orders", [b"next"])
        assert await payloads(mq) == [b"written", b"next"]


async def test_calls_wait_when_too_much_waits_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "WAITING_BYTES_MAX", 100)
    store = FaultyStore()
    async with open_on(store, tmp_path) as mq:
        await with_group(mq)
        first = await begin_held(mq, store, b"first")
        tasks = [await begun(mq, bytes(60)) for _ in range(20)]
        queued = mq._writer._waiting_bytes
        assert 100 < queued <= 160
        tasks[-1].cancel()
        store.held.set()
        await asyncio.gather(first, *tasks[:-1])
        assert len(await payloads(mq)) == 20


async def test_positions_are_stored_soon_and_again_after_a_failure(tmp_path: Path) -> None:
    store = FaultyStore()
    async with open_on(store, tmp_path) as mq:
        await with_group(mq)
        ids = await mq.produce("orders", [b"a", b"b"])
        await mq.consume("workers", "orders", 1)
        assert store.entries[b"meta/workers/orders/current_id"] == b"-1", "nobody has come back"
        store.fail_writes = {store.writes + 1}
        await mq.consume("workers", "orders", 1)
        async with asyncio.timeout(60):
            while store.entries[b"meta/workers/orders/current_id"] == b"-1":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert store.entries[b"meta/workers/orders/current_id"] == b"%d" % ids[1]
        assert store.writes >= max(store.fail_writes)


class Broken(Exception):
    """Of a program that uses a queue."""


async def consume_and_break(store: FaultyStore, folder: Path) -> None:
    async with open_on(store, folder) as mq:
        await with_group(mq)
        await mq.produce("orders", [b"a", b"b", b"c"])
        await mq.consume("workers", "orders", 1)
        await mq.consume("workers", "orders", 1)
        raise Broken


async def test_an_error_leaves_what_was_given_out_last_for_the_next_opening(tmp_path: Path) -> None:
    store = FaultyStore()
    with pytest.raises(Broken):
        await consume_and_break(store, tmp_path)
    async with open_on(FaultyStore(store.entries), tmp_path) as mq:
        assert await payloads(mq) == [b"b", b"c"]


async def test_without_auto_commit_only_what_was_committed_is_stored(tmp_path: Path) -> None:
    store = FaultyStore()
    async with open_on(store, tmp_path) as mq:
        await with_group(mq)
        ids = await mq.produce("orders", [b"a", b"b", b"c", b"d"])
        for _ in range(3):
            await mq.consume("workers", "orders", 1, auto_commit=False)
        await mq.commit("workers", "orders", ids[0])
    async with open_on(FaultyStore(store.entries), tmp_path) as mq:
        assert await payloads(mq) == [b"b", b"c", b"d"]
