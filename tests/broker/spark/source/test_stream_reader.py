"""The streaming source without Spark: what it is asked in which order, against a real broker."""

import pickle
import re
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

from broker.client import Client, Gathering, Message, connect
from broker.client.cluster.targets import NewVChannel
from broker.metrics.table import PREFIX
from broker.spark.refusals import BadCheckpoint, BadColumns, BadLimit, BadOption
from broker.spark.source import progress_report
from broker.spark.source.batch_reader import BatchReader
from broker.spark.source.source_options import parse
from broker.spark.source.stream_reader import StreamReader
from broker.spark.source.subscribed import Subscribed, declared
from tests.broker.metrics.test_exposition import families
from tests.local_broker import local_broker

SCHEMA = pa.schema([("n", pa.int64()), ("t", pa.large_string()), ("odd", pa.time32("s"))])
SHARDS = 3
NO_SUCH_SERVER = "127.0.0.1:1"
SENT = f"{PREFIX}streamingnode_consume_bytes"


class World:
    """A broker in a thread, a client on it, and readers of it."""

    def __init__(self, portal: BlockingPortal, address: str, log: Client, metrics: str) -> None:
        self._portal, self.address, self._log, self._metrics = portal, address, log, metrics

    def do(self, use: Callable[[Client], Awaitable[Any]]) -> Any:
        return self._portal.call(use, self._log)

    def begin(self, use: Callable[[Client], Awaitable[Any]]) -> Future[Any]:
        return self._portal.start_task_soon(use, self._log)

    def make(self, name: str, schema: pa.Schema | None = SCHEMA) -> str:
        self.do(lambda log: log.collections.create(name, shards=SHARDS, schema=schema))
        return name

    def append(self, name: str, *numbers: int) -> None:
        """One append for each, so that each is a batch of its own."""
        for n in numbers:
            self.append_rows(name, pa.table({"n": [n], "t": [f"t{n}"], "odd": [n]}, schema=SCHEMA))

    def append_rows(self, name: str, rows: pa.Table) -> None:
        self.do(lambda log: log.append_arrow(name, rows, key="n"))

    def stream(self, name: str, **options: object) -> StreamReader:
        given = self._given(name, {"startingOffsets": "earliest"} | options)
        parsed = parse(given, streaming=True)
        reader = StreamReader(Subscribed(parsed, declared(parsed)))
        copy: StreamReader = pickle.loads(pickle.dumps(reader))
        return copy

    def batch(self, name: str, **options: object) -> list[dict[str, Any]]:
        parsed = parse(self._given(name, options), streaming=False)
        return rows_of(BatchReader(Subscribed(parsed, declared(parsed))))

    def sent(self) -> int:
        """Bytes that the broker has sent to readers."""
        found = self._portal.call(families, self._metrics)
        return sum(int(it.value) for it in found[SENT].samples)

    def _given(self, name: str, options: dict[str, object]) -> dict[str, str]:
        given = {"server": self.address, "subscribe": name, "columns": "n,t"} | options
        return {option: str(value) for option, value in given.items() if value is not None}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(
            local_broker(folder, pchannels=SHARDS, http_port=0)
        ) as broker,
        portal.wrap_async_context_manager(connect(broker.address)) as log,
    ):
        yield World(portal, broker.address, log, broker.http)


def rows_of(reader: StreamReader | BatchReader, *offsets: Any) -> list[dict[str, Any]]:
    return [
        row
        for partition in reader.partitions(*offsets)
        for rows in reader.read(pickle.loads(pickle.dumps(partition)))
        for row in rows.to_pylist()
    ]


def numbers(reader: StreamReader, start: Any, end: Any) -> list[int]:
    return sorted([row["n"] for row in rows_of(reader, start, end)])


def run(reader: StreamReader, start: Any, limit: ReadLimit) -> tuple[list[list[int]], Any]:
    """Micro-batches until there is no more, and where they end."""
    batches = []
    while (end := reader.latestOffset(start, limit)) != start:
        batches.append(numbers(reader, start, end))
        start = end
    return batches, start


def test_each_micro_batch_is_what_lies_between_two_ticks_on_every_channel(world: World) -> None:
    name = world.make("between")
    world.append(name, *range(40))
    reader = world.stream(name)
    start = reader.initialOffset()
    batches, end = run(reader, start, ReadMaxRows(9))
    assert sorted(n for batch in batches for n in batch) == list(range(40))
    assert len(batches) > 4
    assert max(len(batch) for batch in batches) <= 9
    # Appended one after the other, so each cut parts the older ones from the newer ones everywhere.
    assert [batch for batch in batches if batch != list(range(batch[0], batch[-1] + 1))] == []
    rows = rows_of(reader, start, end)
    assert {*rows[0]} == {"n", "t", "_vchannel", "_message_id", "_time_tick", "_timestamp"}
    assert all(start["tick"] < row["_time_tick"] <= end["tick"] for row in rows)
    assert len({row["_vchannel"] for row in rows}) == SHARDS


@pytest.mark.parametrize(
    ("limit", "batches"),
    [(ReadAllAvailable(), 1), (ReadMinRows(3), 1), (ReadMaxRows(20), 1), (ReadMaxBytes(1), 10)],
    ids=str,
)
def test_every_limit_is_kept_to(world: World, limit: ReadLimit, batches: int) -> None:
    name = world.make(f"limits_{re.sub('[^a-z]+', '_', str(limit).lower())}")
    world.append(name, *range(10))
    reader = world.stream(name)
    found, end = run(reader, reader.initialOffset(), limit)
    assert sorted(n for batch in found for n in batch) == list(range(10))
    assert len(found) == batches
    assert reader.latestOffset(end, limit) == end


def test_a_broadcast_is_in_one_micro_batch_on_all_its_channels(world: World) -> None:
    """As a transfer between accounts is: no micro-batch sees it half."""
    name = world.make("transfers", schema=None)

    async def transfer(log: Client) -> None:
        for number in range(30):
            await log.broadcast.append([name], b"%d" % number)

    reader = world.stream(name, columns="value")
    start = reader.initialOffset()
    transfers = world.begin(transfer)
    batches: list[list[bytes]] = []
    while not transfers.done() or sum(map(len, batches)) < 30 * SHARDS:
        end = reader.latestOffset(start, ReadMaxRows(7))
        batches.append([row["value"] for row in rows_of(reader, start, end)])
        start = end
    transfers.result()
    assert all(values.count(one) == SHARDS for values in batches for one in values)
    assert len([values for values in batches if values]) > 30 * SHARDS // 7


def test_large_rows_that_were_packed_small_are_not_all_held_together(world: World) -> None:
    name = world.make("packed", pa.schema([("n", pa.int64()), ("t", pa.binary())]))
    rows = pa.table({"n": range(24), "t": [bytes(1024 * 1024)] * 24})
    gathering = Gathering(compression="zstd")

    async def append(_: Client) -> None:
        async with connect(world.address, gathering=gathering) as log:
            await log.append_arrow(name, rows, key="n")

    world.do(append)
    reader = world.stream(name, minPartitions=1)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    sizes = [rows.nbytes for part in parts for rows in reader.read(part)]
    assert len(parts) == SHARDS
    assert sum(sizes) >= rows.nbytes
    assert max(sizes) <= 8 * 1024 * 1024


def test_a_limit_that_counts_files_is_refused(world: World) -> None:
    reader = world.stream(world.make("files"))
    with pytest.raises(BadLimit, match=r"\[TIDEMARK_BAD_LIMIT\].*rows or bytes"):
        reader.latestOffset(reader.initialOffset(), ReadMaxFiles(1))


def test_too_few_rows_wait_for_more_but_not_for_ever(world: World) -> None:
    name = world.make("few")
    world.append(name, 1)
    patient = world.stream(name, minRowsPerTrigger=3)
    start, limit = patient.initialOffset(), patient.getDefaultReadLimit()
    assert limit == ReadMinRows(3)
    assert patient.latestOffset(start, limit) == start
    impatient = world.stream(name, minRowsPerTrigger=3, maxTriggerDelay="0ms")
    assert impatient.latestOffset(start, limit) != start
    once = world.stream(name, minRowsPerTrigger=3)
    once.prepareForTriggerAvailableNow()
    assert once.latestOffset(start, limit) != start
    world.append(name, 2, 3)
    assert numbers(patient, start, patient.latestOffset(start, limit)) == [1, 2, 3]


def test_a_run_of_what_is_there_ends_where_the_log_ended_when_it_began(world: World) -> None:
    name = world.make("now")
    world.append(name, *range(6))
    reader = world.stream(name, maxRowsPerTrigger=4)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    world.append(name, 100)
    batches, _ = run(reader, start, reader.getDefaultReadLimit())
    assert sorted(n for batch in batches for n in batch) == list(range(6))


def test_a_start_at_latest_is_asked_twice_answered_once_and_written_before_it_counts(
    world: World,
) -> None:
    name = world.make("late")
    world.append(name, 1)
    reader = world.stream(name, startingOffsets="latest")
    start = reader.initialOffset()
    world.append(name, 2)
    assert reader.initialOffset() == start
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert numbers(reader, start, reader.latestOffset(start, ReadAllAvailable())) == [2]


def test_a_query_starts_and_ends_at_ticks_and_times(world: World) -> None:
    name = world.make("ticks")
    world.append(name, *range(8))
    rows = sorted(world.batch(name), key=lambda row: row["n"])
    assert [row["n"] for row in rows] == list(range(8))
    third, sixth = rows[2]["_time_tick"], rows[5]["_time_tick"]
    some = world.batch(name, startingTick=third, endingTick=sixth)
    assert sorted(row["n"] for row in some) == [2, 3, 4, 5]
    reader = world.stream(name, startingOffsets=None, startingTick=third)
    _, end = run(reader, reader.initialOffset(), ReadAllAvailable())
    assert numbers(reader, reader.initialOffset(), end) == [2, 3, 4, 5, 6, 7]
    begin_ms, end_ms = third >> 18, sixth >> 18
    times = world.batch(name, startingTimestamp=begin_ms, endingTimestamp=end_ms)
    expected = [row["n"] for row in rows if begin_ms <= row["_time_tick"] >> 18 < end_ms]
    assert sorted(row["n"] for row in times) == expected


@pytest.mark.parametrize("option", ["startingTick", "startingTimestamp", "endingTick"])
def test_a_bound_from_the_future_is_refused_with_its_option(world: World, option: str) -> None:
    name = "between"
    text = 4_000_000_000_000 if option == "startingTimestamp" else 4_000_000_000_000 << 18
    with pytest.raises(BadOption, match=f"'{option}' is '{text}': it is in the future"):
        world.batch(name, **{option: text})


def test_what_is_no_offset_of_this_query_is_refused_wherever_it_comes(world: World) -> None:
    name = world.make("mine")
    other = world.stream(world.make("other")).initialOffset()
    reader = world.stream(name)
    old = {name: {NewVChannel("by-dev-rootcoord-dml_0_1v0"): 5}}
    for start in (old, other):
        with pytest.raises(BadCheckpoint):
            reader.latestOffset(start, ReadAllAvailable())
        with pytest.raises(BadCheckpoint):
            reader.partitions(start, start)
        reader.commit(start)  # which never raises


def test_a_query_goes_on_with_its_columns_when_others_are_added(world: World) -> None:
    name = world.make("grown")
    world.append(name, 1)
    before = world.stream(name, columns="n")
    world.do(lambda log: log.collections.add_columns(name, pa.schema([("more", pa.int8())])))
    grown = SCHEMA.append(pa.field("more", pa.int8()))
    world.append_rows(name, pa.table({"n": [2], "t": ["t"], "odd": [2], "more": [7]}, schema=grown))
    start = before.initialOffset()
    assert numbers(before, start, before.latestOffset(start, ReadAllAvailable())) == [1, 2]
    newer = {row["n"]: row["more"] for row in world.batch(name, columns="n,more")}
    assert newer == {1: None, 2: 7}


def test_a_column_that_spark_cannot_have_is_only_refused_when_it_is_wanted(world: World) -> None:
    with pytest.raises(BadColumns, match="'odd' is time32"):
        world.batch("between", columns=None)
    with pytest.raises(BadOption, match="use some of"):
        world.batch("between", columns="n,nothing")


def test_collections_are_read_together_when_they_have_the_same_columns(world: World) -> None:
    one, same = world.make("one"), world.make("same")
    world.append(one, 1, 2)
    world.append(same, 3)
    rows = world.batch(f"{one},{same}")
    assert sorted(row["n"] for row in rows) == [1, 2, 3]
    assert len({row["_vchannel"].rpartition("_")[2].partition("v")[0] for row in rows}) == 2
    other = world.make("different", pa.schema([("n", pa.int8()), ("t", pa.string())]))
    messages = world.make("without", schema=None)
    for names in (f"{one},{other}", f"{messages},{other}"):
        with pytest.raises(BadOption, match="read each with a query of its own"):
            world.batch(names, columns=None if messages in names else "n,t")


def test_messages_have_the_columns_of_messages(world: World) -> None:
    name = world.make("plain", schema=None)
    world.do(
        lambda log: log.append_messages(
            name, [Message(b"v", key=b"k", properties={"a": "b"}), Message(b"w")], atomic=False
        )
    )
    rows = {row["value"]: row for row in world.batch(name, columns=None)}
    assert {*rows} == {b"v", b"w"}
    assert (rows[b"v"]["key"], rows[b"w"]["key"]) == (b"k", None)
    assert rows[b"v"]["properties"] == [("a", "b")]
    assert {row["collection"] for row in rows.values()} == {name}
    chosen = world.batch(name, columns="value,time_tick")
    assert {tuple(row) for row in chosen} == {("value", "time_tick")}
    with pytest.raises(BadOption, match="use some of"):
        world.batch(name, columns="n")
    (vchannel, *_) = {row["vchannel"] for row in rows.values()}
    own = world.batch(vchannel, columns=None)
    assert {row["collection"] for row in own} == {None}


def test_how_far_a_query_is_stands_at_the_broker(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_report, "REPORT_S", 60.0)  # a late report is only logged
    name = world.make("watched")
    world.append(name, 1, 2)
    reader = world.stream(name, cursor="watched-by-spark")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.commit(end)
    cursor = world.do(lambda log: log.cursor("watched-by-spark").get())
    assert (cursor.tick, len(cursor.channels)) == (end["tick"], SHARDS)
    (barrier,) = [
        it for it in world.do(lambda log: log.barriers.list()) if it.name == "watched-by-spark"
    ]
    assert (barrier.tick, [peer.name for peer in barrier.peers]) == (end["tick"], ["spark"])
    for _ in range(600):  # each waits a moment for news; a cut is taken once a second
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        idle = world.do(lambda log: log.cursor("watched-by-spark").get())
        if idle.tick > end["tick"]:
            break
    assert idle.tick > end["tick"]  # nothing is behind, so it is as far as the log is
    back = world.stream(name, cursor="watched-by-spark")
    for _ in range(2):
        back.commit(end)  # from an older checkpoint, which is no error of the query
    (told,) = [it.getMessage() for it in caplog.records if "watched-by-spark" in it.getMessage()]
    assert f"cursor 'watched-by-spark' is ahead of tick {end['tick']}" in told
    assert world.do(lambda log: log.cursor("watched-by-spark").get()).tick >= idle.tick
    reader.stop()
    back.stop()


def test_what_the_log_has_come_to_is_told_from_memory(world: World) -> None:
    reader = world.stream(world.make("told_from_memory"))
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert reader.reportLatestOffset() == end | {"behind": {"ms": 0, "rows": 0, "bytes": 0}}


def test_the_progress_report_says_how_much_a_micro_batch_leaves_unread(world: World) -> None:
    name = world.make("reported")
    world.append(name, *range(20))
    reader = world.stream(name)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    rows = rows_of(reader, start, end)
    report = reader.reportLatestOffset()
    assert report is not None
    assert len(rows) + report["behind"]["rows"] == 20
    assert report["behind"]["bytes"] > 0
    assert report["behind"]["ms"] == (report["tick"] - end["tick"]) >> 18
    _, end = run(reader, end, ReadAllAvailable())
    report = reader.reportLatestOffset()
    assert report is not None
    assert report["behind"] == {"ms": 0, "rows": 0, "bytes": 0}
