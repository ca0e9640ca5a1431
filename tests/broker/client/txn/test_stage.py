"""Batches of staged rows through a whole broker: committed as one, once, or not at all."""

import itertools
import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pyarrow as pa
import pytest
from anyio.lowlevel import checkpoint

from broker.app import Broker
from broker.client import (
    Client,
    Cut,
    InvalidArgument,
    SchemaVersionMismatch,
    StagedPart,
    TransactionExpired,
    Unrecoverable,
    connect,
)
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadTransaction, InvalidTransactionState
from broker.client.txn.stage import Stage
from tests.local_broker import local_broker

V = tuple(NewVChannel(f"by-dev-rootcoord-dml_{number}_7v{number}") for number in range(3))
pytestmark = pytest.mark.asyncio


async def staged(
    log: Client, batch: int, part: int, *, attempt: int = 0, app: str = "job"
) -> StagedPart:
    """A part with two rows on each vchannel."""
    async with log.stage(app, batch, part, attempt) as stage:
        for vchannel in V:
            await stage.append(vchannel, b"%d/%d/%d" % (batch, part, attempt))
            await stage.append(vchannel, b"%d/%d/%d" % (batch, part, attempt))
        return await stage.seal()


async def rows(log: Client) -> list[list[bytes]]:
    """What a reader of each vchannel sees."""
    found = []
    for vchannel in V:
        seen: list[bytes] = []
        async for batch in log.read(vchannel, until="now"):
            seen += [it.payload for it in batch.messages]
        found.append(seen)
    return found


async def open_txns(log: Client) -> int:
    return sum(it.open_txns for it in (await log.offsets.describe(V)).values())


async def until_none_is_open(log: Client) -> None:
    """What was decided ends a little later."""
    with anyio.fail_after(60):
        while await open_txns(log):
            await log.cut(V)


async def test_a_batch_becomes_visible_with_its_commit_and_only_once(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=3) as broker, connect(broker.address) as log:
        parts = [await staged(log, 1, 0), await staged(log, 1, 1)]
        assert await rows(log) == [[], [], []]
        assert await open_txns(log) == 6
        done = await log.commit_batch("job", 1, pickle.loads(pickle.dumps(parts)))
        assert (done.batch, done.already, sorted(done.ticks)) == (1, False, sorted(V))
        expected = [[b"1/0/0"] * 2 + [b"1/1/0"] * 2] * 3
        assert [sorted(each) for each in await rows(log)] == expected
        again = await log.commit_batch("job", 1, parts)
        assert (again.already, again.ticks, again.left_out) == (True, done.ticks, 0)
        replayed = [await staged(log, 1, 0, attempt=1)]
        again = await log.commit_batch("job", 1, replayed)
        assert (again.already, again.left_out) == (True, 3)
        again = await log.commit_batch("job", 1, [parts[0], await staged(log, 1, 1, attempt=2)])
        assert (again.already, again.left_out) == (True, 3), "its first part was committed"
        assert (await log.commit_batch("job", 0, [])).batch == 1
        assert [sorted(each) for each in await rows(log)] == expected
        await until_none_is_open(log)
        (app,) = await log.commits.list()
        assert (app.app, app.batch, app.under_way) == ("job", 1, None)


async def test_an_aborted_part_is_gone_and_a_committed_one_stays(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=3) as broker, connect(broker.address) as log:
        committed = await staged(log, 1, 0)
        await log.commit_batch("job", 1, [committed])
        loser, winner = await staged(log, 2, 0), await staged(log, 2, 0, attempt=1)
        assert await log.abort_batch([committed, loser]) == 3
        with pytest.raises(InvalidTransactionState, match="nothing of batch 2 is committed"):
            await log.commit_batch("job", 2, [loser])
        assert not (await log.commit_batch("job", 2, [winner])).already
        assert await rows(log) == [[b"1/0/0"] * 2 + [b"2/0/1"] * 2] * 3
        async with log.stage("job", 3, 0) as stage:
            await stage.append(V[0], b"never")
        await until_none_is_open(log)


async def test_one_bad_part_keeps_all_of_a_batch_from_being_committed(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=3) as broker, connect(broker.address) as log:
        good, bad = await staged(log, 5, 0), await staged(log, 5, 1)
        await log.abort_batch([bad])
        with pytest.raises(InvalidTransactionState):
            await log.commit_batch("job", 5, [good, bad])
        assert await rows(log) == [[], [], []]
        await until_none_is_open(log)
        again = [await staged(log, 5, part, attempt=1) for part in (0, 1)]
        assert not (await log.commit_batch("job", 5, again)).already


async def test_what_can_never_be_committed_is_refused_by_name(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=3) as broker, connect(broker.address) as log:
        part = await staged(log, 5, 0)

        async def refused(parts: Sequence[StagedPart], why: str, app: str = "job") -> None:
            with pytest.raises(InvalidArgument, match=why):
                await log.commit_batch(app, 5, parts)

        await refused([part], "was staged for batch 5 of app 'job', not", app="other")
        await refused([], "the name of the app is empty", app="")
        await refused([], "at most 256", app="x" * 257)
        twice = [part, replace(part, attempt=1, txns=((V[0], 9),))]
        await refused(twice, "part 0 has transactions of attempts 0 and 1")
        await refused([part, part], "is named twice")
        await refused([replace(part, txns=((NewVChannel("elsewhere_1v0"), 9),))], "on no pchannel")
        await refused([replace(part, part=-1)], "part is -1")
        await refused([replace(part, part=3)], "belongs to part 0, attempt 0 .* not to part 3")
        with pytest.raises(TransactionExpired, match="is unknown"):
            await log.commit_batch("job", 5, [replace(part, txns=((V[0], 9),))])
        async with log.txn(V[0]) as txn:
            await refused([replace(part, txns=((V[0], txn.id),))], "is not staged")
        with pytest.raises(InvalidArgument, match="batch is -1"):
            log.stage("job", -1, 0)
        stage = log.stage("job", 6, 0)
        await stage.seal()
        with pytest.raises(BadTransaction, match="is sealed"):
            await stage.append(V[0], b"late")


async def test_what_waits_too_long_expires_and_its_commit_is_refused_whole(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path, pchannels=3, stage_idle_ms=300) as broker,
        connect(broker.address) as log,
    ):
        with anyio.fail_after(60):
            for batch in itertools.count(1):
                # On a slow machine it may expire before it is sealed.
                with suppress(TransactionExpired):
                    part = await staged(log, batch, 0)
                    break
        await until_none_is_open(log)
        with pytest.raises(TransactionExpired):
            await log.commit_batch("job", batch, [part])
        assert await rows(log) == [[], [], []]


async def test_what_nobody_commits_expires_after_a_restart_too(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path, pchannels=3) as broker,
        connect(broker.address) as log,
    ):
        part = await staged(log, 1, 0)
    async with (
        local_broker(tmp_path, pchannels=3, stage_age_ms_max=300) as broker,
        connect(broker.address) as log,
    ):
        await until_none_is_open(log)
        with pytest.raises(TransactionExpired):
            await log.commit_batch("job", 1, [part])


async def test_a_batch_that_is_too_large_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path, pchannels=3, open_txn_bytes_max=3000) as broker,
        connect(broker.address) as log,
        log.stage("job", 1, 0) as stage,
    ):
        await stage.append(V[0], b"x" * 2000)
        with pytest.raises(Unrecoverable, match="make the batches smaller"):
            await stage.append(V[0], b"x" * 2000)


async def test_a_new_run_of_a_job_frees_what_its_last_run_left_staged(
    tmp_path: Path,
) -> None:
    async with (
        local_broker(tmp_path, pchannels=3, open_txn_bytes_max=3000) as broker,
        connect(broker.address) as log,
    ):
        left = log.stage("job", 1, 0, run=1)
        await left.append(V[0], b"lost" * 500)
        async with log.stage("other", 1, 0, run=2) as stage:
            with pytest.raises(Unrecoverable):
                await stage.append(V[0], b"x" * 2000)
        async with log.stage("job", 1, 0, attempt=1, run=2) as stage:
            await stage.append(V[0], b"kept" * 500)
            part = await stage.seal()
        with pytest.raises(TransactionExpired):
            await left.append(V[0], b"late")
        with pytest.raises(TransactionExpired, match="nothing of batch 1 is committed"):
            await log.commit_batch("job", 1, [await left.seal()])
        assert not (await log.commit_batch("job", 1, [part])).already
        assert (await rows(log))[0] == [b"kept" * 500]
        with pytest.raises(InvalidArgument, match="run is -1"):
            log.stage("job", 2, 0, run=-1)


async def test_large_parts_take_several_transactions(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=3) as broker, connect(broker.address) as log:
        async with log.stage("job", 1, 0) as stage:
            for _ in range(5):
                await stage.append(V[0], b"x" * 4_000_000)
            part = await stage.seal()
        assert len(part.txns) == 2
        assert len((await log.commit_batch("job", 1, [part])).ticks) == 1
        seen = 0
        async for batch in log.read(V[0], until="now"):
            seen += len(batch.messages)
        assert seen == 5


async def test_a_restarted_broker_remembers_what_is_staged_and_what_is_done(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path, pchannels=3) as broker,
        connect(broker.address) as log,
    ):
        await log.commit_batch("job", 1, [await staged(log, 1, 0)])
        part = await staged(log, 2, 0)
    async with (
        local_broker(tmp_path, pchannels=3) as broker,
        connect(broker.address) as log,
    ):
        assert (await log.commit_batch("job", 1, [])).already
        assert not (await log.commit_batch("job", 2, [part])).already
        assert await rows(log) == [[b"1/0/0"] * 2 + [b"2/0/0"] * 2] * 3


async def test_a_killed_committer_resumes_its_commit(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=3) as broker, connect(broker.address) as log:
        await log.commit_batch("job", 1, [await staged(log, 1, 0)])
        kill(broker)
        part = await staged(log, 2, 0)
        assert (await log.commit_batch("job", 1, [])).already
        kill(broker)
        assert not (await log.commit_batch("job", 2, [part])).already
        assert await rows(log) == [[b"1/0/0"] * 2 + [b"2/0/0"] * 2] * 3


def kill(broker: Broker) -> None:
    broker.system.kill("/root/coordinator/commits/committer")


async def test_batches_and_rows_of_arrow_are_staged_like_messages(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array(range(5000), pa.int64())})
    async with local_broker(tmp_path, pchannels=3) as broker, connect(broker.address) as log:
        await log.collections.create("numbers", shards=3, schema=table.schema)
        async with log.stage("job", 1, 0) as stage:
            landed = await stage.append_arrow("numbers", table, key="n")
            assert sum(it.messages for it in landed) == 5000
            await stage.append_batch(V[0], [b"a", b"b"], keys=[b"k", None])
            with pytest.raises(SchemaVersionMismatch, match="takes rows, not messages"):
                await stage.append_batch("numbers", [b"a"])
            part = await stage.seal()
        assert await numbers(log) == []
        await log.commit_batch("job", 1, [part])
        assert sorted(await numbers(log)) == list(range(5000))
        assert (await rows(log))[0] == [b"a", b"b"]


async def numbers(log: Client) -> list[int]:
    found: list[int] = []
    async for batch in log.read_arrow("numbers", until="now"):
        found += batch.column("n").to_pylist()
    return found


async def test_a_cut_with_whole_broadcasts_has_all_of_a_batch_or_nothing(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path, pchannels=3) as broker,
        connect(broker.address) as log,
        anyio.create_task_group() as tasks,
    ):

        async def commit_for_ever() -> None:
            for batch in itertools.count():
                await log.commit_batch("job", batch, [await staged(log, batch, 0)])

        tasks.start_soon(commit_for_ever)
        counts = []
        for _ in range(20):
            cut = await log.cut(V, whole_broadcasts=True)
            seen = [len(await up_to(log, vchannel, cut)) for vchannel in V]
            assert len(set(seen)) == 1
            counts.append(seen[0])
        tasks.cancel_scope.cancel()
        assert counts[-1] > counts[0]


async def up_to(log: Client, vchannel: str, cut: Cut) -> list[bytes]:
    return [it.payload async for it in log.read(vchannel, until=cut).messages()]


async def test_where_a_reader_stops_lies_between_no_two_commits_of_a_batch(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=3) as broker, connect(broker.address) as log:
        for batch in range(30):
            await log.commit_batch("job", batch, [await staged(log, batch, 0)])
        cut = await log.cut(V, whole_broadcasts=True)
        stops = []
        for rows_max in range(1, 180, 9):
            found = await log.measure(V, after=0, until=cut.tick, rows_max=rows_max)
            assert found.choice is not None
            stops.append(found.choice.tick)
        for stop in set(stops):
            at = await log.cut(V, tick=stop)
            assert len({len(await up_to(log, vchannel, at)) for vchannel in V}) == 1
        assert len(set(stops)) > 10


async def test_an_append_that_begins_its_transaction_during_the_commit_is_refused_or_in_it(
    tmp_path: Path,
) -> None:
    async with local_broker(tmp_path, pchannels=3) as broker, connect(broker.address) as log:
        told: list[BadTransaction] = []

        async def late(stage: Stage) -> None:
            try:
                await stage.append(V[1], b"late")
            except BadTransaction as error:
                told.append(error)

        async with anyio.create_task_group() as tasks, log.staged() as out:
            await out.append(V[0], b"early")
            tasks.start_soon(late, out)
            await checkpoint()  # it has asked for a transaction, and waits
        assert await rows(log) == [[b"early"], [] if told else [b"late"], []]
