"""The cut of a backup: what the coordinator records does not come between reading and tick."""

from pathlib import Path

import anyio
import pytest

from broker.client import Client, Deadlines, connect
from broker.client.cluster import Broadcasted, cuts
from broker.client.txn.batch_commits import BatchCommitted
from broker.coordinator.cuts import cut_lock
from broker.core.naming import pchannel_names
from tests.local_broker import local_broker
from tests.roles_processes import until

PCHANNELS = pchannel_names("by-dev", 2)
GUARD_S = 60.0
LOCK = "/root/coordinator/cut_lock"


async def waiting(log: Client) -> int:
    """How many broadcasts and commits wait for the cut."""
    (lock,) = await log.admin.actors(LOCK)
    return int(lock.extra["held_back"])


async def test_a_broadcast_and_a_commit_on_one_vchannel_wait_until_the_cut_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow machine needs longer than a hold lasts, and would read again.
    monkeypatch.setattr(cut_lock, "LEASE_S", GUARD_S)
    monkeypatch.setattr(cuts, "RELEASE_S", GUARD_S)
    done: list[Broadcasted | BatchCommitted] = []
    async with (
        local_broker(tmp_path, pchannels=2) as broker,
        connect(broker.address, deadlines=Deadlines(append_s=GUARD_S, call_s=GUARD_S)) as log,
        anyio.create_task_group() as tasks,
    ):
        (shard,) = (await log.collections.create("flights", shards=1)).vchannels
        async with log.stage("job", 1, 0) as stage:
            await stage.append(shard, b"row")
            part = await stage.seal()

        async def broadcast() -> None:
            done.append(await log.broadcast.append([shard], b"narrow"))

        async def commit() -> None:
            done.append(await log.commit_batch("job", 1, [part]))

        async def both_are_done() -> bool:
            return len(done) == 2

        async def read() -> int:
            tasks.start_soon(broadcast)
            tasks.start_soon(commit)

            async def both_wait() -> bool:
                return await waiting(log) == 2

            await until(both_wait)
            return len(done)

        with anyio.fail_after(GUARD_S):
            seen, cut = await log.cut_cluster(PCHANNELS, read)
            await until(both_are_done)
    assert seen == 0
    for it in done:
        match it:
            case Broadcasted():
                assert it.results[shard].tick > cut.tick
            case BatchCommitted():
                assert it.ticks[shard] > cut.tick


async def test_a_reading_that_takes_longer_than_the_hold_makes_no_cut(tmp_path: Path) -> None:
    readings = 0
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:

        async def slow() -> None:
            nonlocal readings
            readings += 1
            if readings == 1:

                async def hold_is_over() -> bool:
                    (lock,) = await log.admin.actors(LOCK)
                    return int(lock.extra["holds"]) == 0

                await until(hold_is_over)

        with anyio.fail_after(GUARD_S):
            _, cut = await log.cut_cluster(PCHANNELS, slow)
    # The first one was thrown away: something could have been recorded meanwhile. On a slow
    # machine it may happen to others, too.
    assert readings >= 2
    assert set(cut.ends) == set(PCHANNELS)


async def test_an_error_of_the_reading_ends_the_cut_and_its_hold(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:

        async def fails() -> None:
            raise OSError("no such file")

        with pytest.raises(OSError, match="no such file"):
            await log.cut_cluster(PCHANNELS, fails)
        (lock,) = await log.admin.actors(LOCK)
        assert lock.extra["holds"] == "0"
