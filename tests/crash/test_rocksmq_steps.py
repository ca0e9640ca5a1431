"""The process dies at each write of an embedded queue, before it or after it took effect."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.core.rocksmq.page_retention import PageRules
from broker.rocksmq import RocksMQ
from tests.broker.rocksmq.faulty_store import FaultyStore, Killed
from tests.broker.rocksmq.open_queues import open_on

RULES = PageRules(page_bytes=100, age_ms_max=0, size_bytes_max=None)
MESSAGE = b"x" * 60


@dataclass
class Told:
    """What the program was answered, and what it was about to do."""

    acknowledged: dict[str, list[int]] = field(default_factory=dict)
    trying: tuple[str, int] | None = None
    """A channel, and how many messages are being produced to it."""
    answered: int = -1
    """The next id after what the group was given."""
    committed: int = -1
    destroyed: bool = False


async def live(mq: RocksMQ, told: Told) -> None:
    """One scripted life, with every kind of write."""
    for name in ("orders", "gone"):
        await mq.create_channel(name)
        told.acknowledged[name] = []
    await mq.create_consumer_group("workers", "orders")
    await mq.create_consumer_group("audit", "gone")
    for turn in range(4):
        await produce(mq, told, "orders", 3)
        await produce(mq, told, "gone", 1)
        found = await mq.consume("workers", "orders", 2)
        told.answered = found[-1].msg_id + 1
        if turn % 2:
            await mq.commit("workers", "orders")
            told.committed = told.answered
        await mq.sweep()
    await mq.seek("workers", "orders", told.answered)
    told.committed = told.answered
    await mq.destroy_consumer_group("audit", "gone")
    told.destroyed = True
    await mq.destroy_channel("gone")
    del told.acknowledged["gone"]
    await mq.create_channel("gone")
    told.acknowledged["gone"] = []
    await produce(mq, told, "gone", 2)


async def produce(mq: RocksMQ, told: Told, channel: str, count: int) -> None:
    told.trying = channel, count
    told.acknowledged[channel] += await mq.produce(channel, [MESSAGE] * count)
    told.trying = None


def abandon(mq: RocksMQ) -> None:
    """What is left of a process that was killed: the lock is free, its threads are gone."""
    mq._closed = True
    mq._writer.stop()
    mq._sweeper.stop()
    mq._write_thread.shutdown()
    mq._read_threads.shutdown()
    mq._opened.folder.release()


async def killed_at(store: FaultyStore, folder: Path) -> Told:
    told = Told()
    mq = open_on(store, folder, rules=RULES)
    try:
        await live(mq, told)
    except Killed:
        pass
    finally:
        abandon(mq)
    return told


async def check(store: FaultyStore, folder: Path, told: Told) -> None:
    """Another process opens what is left, finds what was acknowledged, and goes on."""
    async with open_on(FaultyStore(store.entries), folder, rules=RULES) as mq:
        for channel, ids in told.acknowledged.items():
            if not mq.channel_exists(channel):
                assert told.destroyed, f"{channel} was acknowledged"
                continue
            view = mq.describe_channel(channel)
            await mq.create_consumer_group("check", channel)
            found = [it.msg_id for it in await mq.consume("check", channel, 1000)]
            wanted = [it for it in ids if it >= view.begin_id]
            assert found[: len(wanted)] == wanted
            extra = found[len(wanted) :]
            tried = told.trying[1] if told.trying and told.trying[0] == channel else 0
            assert len(extra) in (0, tried), "whole or absent"
            assert view.end_id == (found[-1] + 1 if found else view.begin_id)
            if channel == "orders" and "workers" in view.positions:
                assert told.committed <= view.positions["workers"] <= told.answered
                assert all(it < told.committed for it in ids if it < view.begin_id)
            ids_now = await mq.produce(channel, [b"more"])
            assert ids_now[0] > max([*found, *ids], default=0)
        # Of a channel that is not there, nothing is left.
        for channel in ("orders", "gone"):
            if not mq.channel_exists(channel):
                prefixes = f"data/{channel}/".encode(), f"meta/{channel}/".encode()
                assert not [key for key in store.entries if key.startswith(prefixes)]


async def writes_of_a_life(folder: Path) -> int:
    store = FaultyStore()
    await killed_at(store, folder)
    return store.writes


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_kill_at_each_write_loses_nothing_acknowledged(tmp_path: Path, after: bool) -> None:
    writes = await writes_of_a_life(tmp_path / "whole")
    assert writes >= 20
    for number in range(2, writes + 1):  # 1 is that of the opening
        store = FaultyStore()
        store.kill_at, store.kill_after = number, after
        told = await killed_at(store, tmp_path / f"{number}")
        assert store.writes >= number
        await check(store, tmp_path / f"{number}", told)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_kill_while_a_folder_is_opened_leaves_it_as_it_was(
    tmp_path: Path, after: bool
) -> None:
    store = FaultyStore()
    told = await killed_at(store, tmp_path)
    again = FaultyStore(store.entries)
    again.kill_at, again.kill_after = 1, after
    with pytest.raises(Killed):
        open_on(again, tmp_path)
    await check(store, tmp_path, told)


async def test_a_failed_write_of_each_kind_leaves_what_was_acknowledged(tmp_path: Path) -> None:
    writes = await writes_of_a_life(tmp_path / "whole")
    for number in range(2, writes + 1):
        store = FaultyStore()
        store.fail_writes = {number}
        told = Told()
        async with open_on(store, tmp_path / f"{number}", rules=RULES) as mq:
            outcome = await asyncio.gather(live(mq, told), return_exceptions=True)
            assert outcome[0] is None or "I/O error" in str(outcome[0])
        told.trying = None  # a refused batch is absent
        told.committed = min(told.committed, told.answered)
        await check(store, tmp_path / f"{number}", told)
