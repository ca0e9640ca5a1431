"""Limits of collections and identities, as their clients meet them, changed while they run."""

from pathlib import Path

import anyio
import pytest

from broker.client import Client, Deadlines, connect
from broker.client.errors import ConnectionLost, OutcomeUnknown, RateLimited
from broker.client.groups.leased_batch import LeasedBatch
from tests.limits.refusals import refused
from tests.local_broker import local_broker

GUARD_S = 60.0
BODY = b"x" * 1000


async def limit(log: Client, limits: str) -> None:
    await log.config.set("limits", limits)


async def test_who_is_over_a_limit_waits_and_a_neighbour_does_not(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await log.collections.create("quiet", shards=1)
        await limit(log, "collection:loud in_bytes=1")
        await log.append("loud", BODY)  # the burst, and a debt of a thousand seconds
        error = await refused(
            lambda within_s: log.append("loud", BODY, deadline_s=within_s),
            r"collection 'loud'.*over its limit",
        )
        assert isinstance(error.__cause__, RateLimited)
        async with connect(broker.address) as neighbour:
            for _ in range(20):
                await neighbour.append("quiet", BODY, deadline_s=GUARD_S)


async def test_a_client_closes_without_the_throttled_appends_that_nobody_awaits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.client.append.producer.TOLD_S_MAX", 10 * GUARD_S)
    patient = Deadlines(close_s=10 * GUARD_S)
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await limit(log, "collection:loud in_bytes=1")
        await log.append("loud", BODY)  # a debt of a thousand seconds
        async with connect(broker.address, deadlines=patient) as loud:
            await refused(
                lambda within_s: loud.append_batch("loud", [BODY], deadline_s=within_s),
                "over its limit",
            )
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(loud.append_batch, "loud", [BODY])
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            with anyio.fail_after(GUARD_S):
                await loud.aclose()


async def test_a_raised_limit_lets_waiting_appends_through(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await limit(log, "collection:* in_messages=1")
        await log.append_batch("loud", [b"x"] * 4)  # owes three seconds
        await log.append("loud", b"late", deadline_s=GUARD_S)
        await limit(log, "")
        for _ in range(20):
            await log.append("loud", BODY, deadline_s=GUARD_S)


async def test_a_reader_over_its_limit_gets_all_of_it_once_that_ends(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        for number in range(5):
            await log.append("loud", b"%d" % number)
        await limit(log, "collection:loud out_messages=1")
        read: list[bytes] = []

        async def take() -> None:
            async for batch in log.read("loud", start="all", until="now"):
                read.extend(it.payload for it in batch.messages)

        with anyio.fail_after(GUARD_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take)
                await limit(log, "")
        assert read == [b"%d" % number for number in range(5)]


async def test_a_member_of_a_group_over_its_limit_gets_all_of_it_once_that_ends(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await log.group("g").create("loud", start="all")
        await log.append_batch("loud", [b"%d" % it for it in range(900)])
        await limit(log, "collection:loud out_messages=1")
        async with log.group("g").join("loud") as member:
            with anyio.fail_after(GUARD_S):
                batch = await member.__anext__()
                await batch.ack()
            assert len(batch.messages) == 900
            await log.append("loud", b"more")
            with anyio.move_on_after(1.0) as waiting:
                await member.__anext__()
            assert waiting.cancelled_caught, "it owes a quarter of an hour"
            await limit(log, "")
            with anyio.fail_after(GUARD_S):
                batch = await member.__anext__()
                await batch.ack()
            assert [it.payload for it in batch.messages] == [b"more"]


async def test_a_member_of_a_group_counts_as_a_stream(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await log.group("g").create("loud", start="all")
        await log.append("loud", b"before")
        await limit(log, "identity:127.0.0.1 streams=1")
        meters = broker.edge.meters
        before = meters.limit_refused
        came: list[LeasedBatch] = []
        async with log.group("g").join("loud") as member:

            async def take() -> None:
                came.append(await member.__anext__())

            with anyio.fail_after(2 * GUARD_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(take)
                    with anyio.fail_after(GUARD_S):
                        while meters.limit_refused == before:  # noqa: ASYNC110 - a live broker
                            await anyio.sleep(0.01)
                    with anyio.move_on_after(1.0):
                        await anyio.sleep_forever()
                    assert came == [], "the stream of the append is its limit"
                    await limit(log, "")
                await came[0].ack()


async def test_each_copy_of_a_broadcast_counts_as_an_append(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=2)
        await limit(log, "collection:loud in_bytes=1")
        await log.broadcast.append("loud", BODY, deadline_s=GUARD_S)  # owes half an hour
        await refused(
            lambda within_s: log.broadcast.append("loud", BODY, deadline_s=within_s),
            r"collection 'loud'.*over its limit",
            OutcomeUnknown,
        )
        await limit(log, "")
        await log.broadcast.append("loud", BODY, deadline_s=GUARD_S)


async def test_an_identity_has_so_many_streams_and_no_more(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await log.append("loud", b"before")
        await limit(log, "identity:127.0.0.1 streams=1")
        async with connect(broker.address) as other:
            await refused(
                lambda within_s: other.append("loud", b"never", deadline_s=within_s),
                "has 1 streams open, which is its limit",
            )
        await limit(log, "")
        async with connect(broker.address) as other:
            await other.append("loud", b"after", deadline_s=GUARD_S)


async def test_an_identity_has_so_many_open_transactions_and_waits_for_one_to_end(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await limit(log, "identity:127.0.0.1 transactions=1")
        async with log.txn("loud", keepalive_s=4 * GUARD_S) as open_one:
            await open_one.append(b"first")
            await refused(
                lambda within_s: log.txn("loud", deadline_s=within_s).begin(),
                "has 1 transactions open, which is its limit",
            )
        async with log.txn("loud") as later:
            await later.append(b"second")
        assert [
            it.payload async for it in log.read("loud", start="all", until="now").messages()
        ] == [b"first", b"second"]


async def test_a_part_of_a_batch_that_is_staged_again_takes_the_place_of_the_first_attempt(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        (vchannel,) = (await log.collections.create("loud", shards=1)).vchannels
        await limit(log, "identity:127.0.0.1 transactions=1")
        for attempt in range(3):
            async with log.stage("job", 1, 0, attempt, run=1, deadline_s=GUARD_S) as stage:
                await stage.append(vchannel, b"%d" % attempt)
                part = await stage.seal()
        await log.commit_batch("job", 1, [part])
        read = log.read("loud", start="all", until="now").messages()
        assert [it.payload async for it in read] == [b"2"]


async def test_an_identity_has_so_many_connections_and_learns_it(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await log.append("loud", b"before")
        await limit(log, "identity:127.0.0.1 connections=1")
        why = r"identity '127.0.0.1' has \d connections, and its limit is 1; close some"

        async def come(within_s: float) -> None:
            deadlines = Deadlines(connect_s=within_s, open_s=within_s)
            async with connect(broker.address, deadlines=deadlines) as other:
                await other.append("loud", b"never", deadline_s=within_s)

        await refused(come, why, ConnectionLost)
        await log.append("loud", b"open connections stay", deadline_s=GUARD_S)
        await limit(log, "")
        async with connect(broker.address) as other:
            await other.append("loud", b"after", deadline_s=GUARD_S)


@pytest.mark.parametrize("limits", ["loud in_bytes=1", "collection:loud"])
async def test_limits_that_say_nothing_are_refused(tmp_path: Path, limits: str) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        with pytest.raises(Exception, match="write"):
            await limit(log, limits)
