"""What retention took before a query read it: never passed over in silence, wherever it shows."""

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker.app import run_single
from broker.app.limits_from_settings import node_limits
from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel
from broker.node.state.node_limits import NodeLimits
from broker.process_settings import Settings
from broker.spark.refusals import DataLoss
from broker.spark.source.source_options import parse
from broker.spark.source.stream_reader import StreamReader
from broker.spark.source.subscribed import Subscribed, declared
from tests.local_broker import local_broker

V = NewVChannel("by-dev-rootcoord-dml_0_1v0")
QUIET = NewVChannel("by-dev-rootcoord-dml_0_2v0")
"""On the same log."""
SEGMENT_BYTES = 1024 * 1024
KEPT_SEGMENTS = 4
FORGOTTEN_S_MAX = 60


class World:
    """A broker that keeps little, in a thread, and a client on it."""

    def __init__(self, portal: BlockingPortal, address: str, log: Client) -> None:
        self._portal, self._address, self.log = portal, address, log

    def call(self, method: Any, *arguments: Any) -> Any:
        return self._portal.call(method, *arguments)

    def append(self, *values: bytes) -> None:
        for value in values:
            self.call(self.log.append, V, value)

    def create(self, name: str) -> None:
        async def create() -> None:
            await self.log.collections.create(name, shards=1)

        self.call(create)

    def fill(self, segments: int) -> None:
        for _ in range(4 * segments):
            self.append(b"filler" + os.urandom(SEGMENT_BYTES // 4))

    def begin(self, value: bytes) -> Any:
        txn = self.log.txn(V, keepalive_s=120)
        self.call(txn.begin)
        self.call(txn.append, value)
        return txn

    def first_id(self) -> int:
        return int(self.call(self.log.offsets.describe, [V])[V].first_id)

    def until_forgotten(self, message_id: int) -> None:
        """Wait until retention has removed it; what a restart needs stays."""

        async def watch() -> None:
            with anyio.fail_after(FORGOTTEN_S_MAX):
                async with self.log.barrier().watch() as ticks:
                    async for _ in ticks:
                        if (await self.log.offsets.describe([V]))[V].first_id > message_id:
                            return

        self.call(watch)

    def reader(self, **options: str) -> StreamReader:
        given = {"server": self._address, "startingOffsets": "earliest"} | options
        given |= {} if "subscribePattern" in options else {"subscribe": options.get("subscribe", V)}
        parsed = parse(given, streaming=True)
        return StreamReader(Subscribed(parsed, declared(parsed)))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    def impatient(settings: Settings) -> NodeLimits:
        """Retention looks every 10 s otherwise, and the tests would do little but wait for it."""
        return replace(node_limits(settings), retention_period_s=0.2)

    monkeypatch.setattr(run_single, "node_limits", impatient)
    settings = {
        "pchannels": 1,
        "segment_bytes": SEGMENT_BYTES,
        "retention_bytes": KEPT_SEGMENTS * SEGMENT_BYTES,
        "snapshot_records": 1,
        "snapshot_period_s": 0.2,
        "tail_age_s": 0.5,
    }
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, **settings)) as broker,
        portal.wrap_async_context_manager(connect(broker.address)) as log,
    ):
        yield World(portal, broker.address, log)


def values(reader: StreamReader, partitions: Any) -> list[bytes]:
    found = [
        value.as_py()
        for partition in partitions
        for rows in reader.read(partition)
        for value in rows.column("value")
    ]
    return [value for value in found if not value.startswith(b"filler")]


def test_lost_messages_end_a_query_and_are_named_unless_it_does_without(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.append(b"lost")
    strict, lenient = world.reader(), world.reader(failOnDataLoss="false")
    start = strict.initialOffset()
    world.fill(1)
    middle = strict.latestOffset(start, ReadAllAvailable())
    early, later = strict.partitions(start, middle), lenient.partitions(start, middle)
    world.fill(KEPT_SEGMENTS + 1)
    world.append(b"kept")
    world.until_forgotten(start["ends"][V])
    end = strict.latestOffset(middle, ReadAllAvailable())

    with pytest.raises(DataLoss, match=r"\[TIDEMARK_DATA_LOSS\].*lost ids \[1, .*failOnDataLoss"):
        strict.partitions(start, end)
    with pytest.raises(DataLoss, match=r"\[TIDEMARK_DATA_LOSS\]"):
        values(strict, early)  # planned in time, read too late
    with caplog.at_level(logging.WARNING, "tidemark.spark"):
        assert values(lenient, later) == []
        assert values(lenient, lenient.partitions(start, end)) == [b"kept"]
    assert "data loss accepted" in caplog.text


def test_a_transaction_that_retention_cut_in_half_is_lost_and_said_to_be(world: World) -> None:
    txn = world.begin(b"half")
    world.fill(2)
    strict, lenient = world.reader(startingOffsets="latest"), world.reader(failOnDataLoss="false")
    start = strict.initialOffset()
    began = start["ends"][V]
    strict.latestOffset(start, ReadAllAvailable())
    world.append(b"whole")
    world.call(txn.commit)
    world.fill(KEPT_SEGMENTS - 2)
    world.until_forgotten(1)
    assert world.first_id() <= began, "retention took more than the begin of the transaction"
    end = strict.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLoss, match="retention removed its messages"):
        values(strict, strict.partitions(start, end))
    assert values(lenient, lenient.partitions(start, end)) == [b"whole"]


def test_a_query_from_the_beginning_says_which_transaction_had_begun_before_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    txn = world.begin(b"half")
    world.fill(2)
    world.append(b"whole")
    world.call(txn.commit)
    world.fill(KEPT_SEGMENTS - 2)
    world.until_forgotten(1)
    strict = world.reader(minPartitions="4")
    start = strict.initialOffset()
    partitions = strict.partitions(start, strict.latestOffset(start, ReadAllAvailable()))
    assert len(partitions) > 1, "the transaction ends behind the first"
    with caplog.at_level(logging.WARNING, "tidemark.spark"):
        assert values(strict, partitions) == [b"whole"]
    assert "skips transactions that began before" in caplog.text
    assert "retention removed its messages" in caplog.text
    again = strict.partitions(start, strict.latestOffset(start, ReadAllAvailable()))
    world.fill(KEPT_SEGMENTS)
    world.until_forgotten(start["ends"][V])
    with pytest.raises(DataLoss):
        values(strict, again)


def test_a_query_that_waits_for_rows_is_not_lost_when_retention_takes_those_of_others(
    world: World,
) -> None:
    world.call(world.log.append, QUIET, b"first")
    reader = world.reader(subscribe=QUIET)
    start = reader.initialOffset()
    read = reader.latestOffset(start, ReadAllAvailable())
    assert values(reader, reader.partitions(start, read)) == [b"first"]
    world.fill(1)
    moved = reader.latestOffset(read, ReadAllAvailable())
    assert moved["ends"][QUIET] > read["ends"][QUIET]
    assert reader.partitions(read, moved) == []
    world.append(b"one more")
    assert reader.latestOffset(moved, ReadAllAvailable()) == moved, "a batch for each of others'"
    world.fill(KEPT_SEGMENTS)
    later = reader.latestOffset(moved, ReadAllAvailable())
    world.until_forgotten(read["ends"][QUIET])
    world.call(world.log.append, QUIET, b"second")
    end = reader.latestOffset(later, ReadAllAvailable())
    assert values(reader, reader.partitions(later, end)) == [b"second"]


def test_a_collection_that_joined_loses_nothing_when_retention_takes_what_was_there_before_it(
    world: World,
) -> None:
    world.create("joins_1")
    reader = world.reader(subscribePattern="joins_.")
    before = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    world.fill(3)
    read = reader.latestOffset(before, ReadAllAvailable())
    world.create("joins_2")
    world.call(world.log.append, "joins_2", b"kept")
    reader = world.reader(subscribePattern="joins_.")
    first_id = world.first_id()
    end = reader.latestOffset(read, ReadAllAvailable())
    assert values(reader, reader.partitions(read, end)) == [b"kept"]
    world.fill(2)
    world.until_forgotten(first_id)
    reader = world.reader(subscribePattern="joins_.")
    assert values(reader, reader.partitions(read, end)) == [b"kept"]
