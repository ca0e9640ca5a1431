"""Members that come and go, and members that never acknowledge: others get everything."""

import asyncio
from contextlib import suppress
from pathlib import Path

from broker.client import Client
from broker.client.errors import LeaseLost
from tests.broker.client.groups.test_groups import filled, running, take, until_empty

ROUNDS = 30


async def done_by(log: Client, wanted: set[bytes]) -> None:
    """A member that works until everything is done; what comes late is acknowledged again."""
    done: set[bytes] = set()
    async with log.group("workers").join("trains", member="worker") as member:
        while done < wanted:
            batch = await take(member)
            with suppress(LeaseLost):  # so slow a machine: it comes again
                await batch.ack()
                assert not done & set(batch.payloads), "acknowledged, and came again"
                done |= set(batch.payloads)
    assert done == wanted


async def test_a_member_that_joins_and_leaves_in_a_loop_takes_nothing_from_the_others(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        wanted = await filled(log)
        await log.group("workers").create("trains")
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(done_by(log, wanted))
            rounds = 0
            while rounds < ROUNDS or not working.done():
                # With what it was sent ahead, and without a step.
                async with log.group("workers").join("trains", member="restless"):
                    rounds += 1
        await until_empty(log, "workers")
        views = await log.group("workers").describe("trains")
        assert [it.group.acked for it in views] == [(), ()]
        lag = await log.group("workers").lag("trains")
        assert [it.messages for it in lag.values()] == [0, 0]


async def test_what_a_member_never_acknowledges_comes_to_others_as_often_as_it_takes(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        wanted = await filled(log, count=20)
        group = log.group("workers")
        await group.create("trains", lease_s=0.5)
        came: set[bytes] = set()
        async with group.join("trains", member="idle", prefetch_bytes=1) as idle:
            while came < wanted:
                came |= set((await take(idle)).payloads)
            views = await group.describe("trains")
            assert not any(it.group.acked for it in views)
            await done_by(log, wanted)
        await until_empty(log, "workers")
        lag = await group.lag("trains")
        assert [it.messages for it in lag.values()] == [0, 0]
