"""The sink's steps by themselves, with a broker that goes away between them."""

import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pyarrow as pa
import pytest

from broker.client import Client, StagedPart, TidemarkError
from broker.model.stage import StageName
from broker.spark.gateway import gateway_here
from broker.spark.sink.sink_options import SinkOptions, parse_sink
from broker.spark.sink.staged_rows import abort, commit, stage
from broker.spark.sink.writers import StreamWriter
from tests.broker_process import BrokerProcess, free_port
from tests.spark.conftest import WithClient, run_with_client


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": list(values)})


def staged(options: SinkOptions, batch: int, *values: bytes) -> list[StagedPart]:
    """Two tasks, each with all of the values."""
    return [
        stage(options, StageName("query", batch, part, 0), iter([rows(*values)]))
        for part in range(2)
    ]


def read(address: str) -> list[bytes]:
    found: list[bytes] = []

    async def use(log: Client) -> None:
        found.extend([it.payload async for it in log.read("rows", until="now").messages()])

    run_with_client(address, use)
    return sorted(found)


async def _create_one(log: Client) -> None:
    await log.collections.create("rows", shards=1)


async def _create(log: Client) -> None:
    await log.collections.create("rows", shards=2)


def test_a_commit_that_failed_and_was_given_up_is_done_by_the_next_one(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    options = parse_sink({"server": listen, "topic": "rows"}, streaming=True)
    hasty = parse_sink({"server": listen, "topic": "rows", "timeout": "3s"}, streaming=True)
    with BrokerProcess(tmp_path / "data", listen) as broker:
        run_with_client(broker.address, _create)
        parts = staged(options, 0, b"a", b"b")
        assert read(listen) == []
        broker.kill()
        with pytest.raises(TidemarkError):
            commit(hasty, parts, of_stream=True)
        abort(hasty, parts)  # the broker cannot be reached: nothing to be done, and no error
    with BrokerProcess(tmp_path / "data", listen) as broker:
        commit(options, parts, of_stream=True)
        assert read(listen) == [b"a", b"a", b"b", b"b"]
        abort(options, parts)
        commit(options, parts, of_stream=True)
        commit(options, staged(options, 0, b"again"), of_stream=True)
        assert read(listen) == [b"a", b"a", b"b", b"b"]
        commit(options, staged(options, 1, b"c"), of_stream=True)
        abort(options, staged(options, 2, b"never"))
        assert read(listen) == [b"a", b"a", b"b", b"b", b"c", b"c"]
        gateway_here(options.server).close()


def test_a_write_that_is_taken_for_a_repeat_says_so_unless_a_restart_explains_it(
    broker: BrokerProcess, with_client: WithClient, caplog: pytest.LogCaptureFixture
) -> None:
    options = parse_sink({"server": broker.address, "topic": "repeats"}, streaming=True)

    async def create(log: Client) -> None:
        await log.collections.create("repeats", shards=1)

    def said(batch: int, *, of_stream: bool) -> str:
        caplog.clear()
        parts = [stage(options, StageName("repeated", batch, 0, 0), iter([rows(b"a")]))]
        commit(options, parts, of_stream=of_stream)
        commit(options, parts, of_stream=of_stream)
        return " ".join(it.getMessage() for it in caplog.records if it.levelname == "WARNING")

    with_client(create)
    assert said(7, of_stream=False) == "", "the second commit only repeats the first"
    assert said(8, of_stream=True) == ""
    assert said(8, of_stream=True) == "", "Spark writes its last micro-batch again at a restart"
    behind = said(0, of_stream=True)
    assert "[TIDEMARK_REPEAT] nothing of micro-batch 0 was added: app 'repeated'" in behind
    assert "up to 8" in behind
    assert "another appId" in behind
    again = said(8, of_stream=False)
    assert "[TIDEMARK_REPEAT] nothing of this write was added: app 'repeated'" in again
    assert "batch 8 (to by-dev-rootcoord-dml_" in again
    assert "a batchId above 8, or an appId of its own" in again


def test_a_task_does_not_wait_for_a_broker_for_ever(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    options = parse_sink({"server": listen, "topic": "rows"}, streaming=True)
    hasty = parse_sink({"server": listen, "topic": "rows", "timeout": "1s"}, streaming=True)
    with BrokerProcess(tmp_path / "data", listen) as broker:
        run_with_client(broker.address, _create)
        commit(options, staged(options, 0, b"a"), of_stream=True)

        def batches() -> object:
            yield rows(*[b"b"] * 20_000)
            broker.kill()
            yield from [rows(*[b"c"] * 20_000)] * 2

        with pytest.raises(TidemarkError):
            stage(hasty, StageName("query", 1, 0, 0), batches())  # type: ignore[arg-type]
        gateway_here(options.server).close()


def test_a_driver_that_was_killed_or_a_task_leaves_the_next_one_room_for_the_same_batch(
    tmp_path: Path,
) -> None:
    """As Spark makes a writer for each try at a micro-batch, and pickles it to its tasks."""
    with BrokerProcess(tmp_path / "data", open_txn_bytes_max="3000") as broker:
        options = parse_sink({"server": broker.address, "topic": "rows"}, streaming=True)
        run_with_client(broker.address, _create_one)
        large = rows(*[b"x" * 1000] * 2)
        first = StageName("query", 7, 0, 0, run=1)
        stage(options, first, iter([large]))
        with pytest.raises(TidemarkError, match="open transactions hold"):
            stage(options, replace(first, part=1), iter([large]))
        stage(options, replace(first, attempt=1), iter([large]))  # as after a task that was killed
        part = stage(options, replace(first, run=2), iter([large]))
        commit(options, [part], of_stream=True)
        assert len(read(broker.address)) == 2
        gateway_here(options.server).close()


def test_every_try_at_a_micro_batch_is_a_later_run() -> None:
    options = parse_sink({"topic": "rows"}, streaming=True)
    writers = [StreamWriter(options, overwrite=False) for _ in range(2)]
    runs = [vars(pickle.loads(pickle.dumps(it)))["_run"] for it in writers]
    assert runs == sorted(runs)
    assert runs[0] > 1_700_000_000_000


@pytest.mark.parametrize("alike", [1, 50])
def test_rows_with_properties_of_their_own_keep_them_and_their_order(
    broker: BrokerProcess, with_client: WithClient, alike: int
) -> None:
    """With few alike in a row they go out one by one, else in batches."""
    name, other = f"own_{alike}", f"other_{alike}"
    numbers = range(2000)
    given = [(name if at // alike % 2 else other, [("n", str(at // alike))]) for at in numbers]
    batch = pa.record_batch(
        {
            "value": [b"%d" % at for at in numbers],
            "key": [None if at % 3 else at % 9 for at in numbers],
            "collection": [where for where, _ in given],
            "properties": pa.array([own for _, own in given], pa.map_(pa.string(), pa.string())),
        }
    )
    options = parse_sink({"server": broker.address}, streaming=True)

    async def use(log: Client) -> None:
        for target in (name, other):
            await log.collections.create(target, shards=1)
        place = StageName(name, 0, 0, 0)
        part = await anyio.to_thread.run_sync(stage, options, place, iter([batch]))
        await anyio.to_thread.run_sync(partial(commit, options, [part], of_stream=True))
        for target in (name, other):
            read = [it async for it in log.read(target, until="now").messages()]
            mine = [at for at in numbers if given[at][0] == target]
            assert [int(it.payload) for it in read] == mine
            assert [it.properties["n"] for it in read] == [str(at // alike) for at in mine]
            assert sum(it.key is None for it in read) == sum(at % 3 > 0 for at in mine)

    with_client(use)
