"""A tick that retention has passed is told, wherever a query continues at one."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import GreaterThan
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker.client import Client, ConnectionLost
from broker.spark.gateway import AnyScanner, Gateway
from broker.spark.refusals import DataLoss
from broker.spark.source.batch_reader import BatchReader
from broker.spark.source.bounds import TICK_LOGICAL_BITS
from broker.spark.source.reading import SpanPartition, SpanReader
from broker.spark.source.source_options import parse
from broker.spark.source.stream_reader import StreamReader
from broker.spark.source.subscribed import Subscribed, declared
from tests.broker.spark import test_lost
from tests.broker.spark.test_lost import KEPT_SEGMENTS, V, World, values

world = test_lost.world
ALL = ReadAllAvailable()


def test_what_retention_takes_while_a_read_is_broken_is_a_loss(world: World) -> None:
    world.append(b"first")
    reader = world.reader()
    start = reader.initialOffset()
    world.fill(1)
    world.append(b"second", b"third")
    end = reader.latestOffset(start, ALL)
    (partition,) = reader.partitions(start, end)
    assert isinstance(partition, SpanPartition)

    class Breaking(Gateway):
        broken = False

        def read(self, open: Callable[[Client], AnyScanner]) -> Iterator[Any]:
            for batch in super().read(open):
                yield batch
                if not self.broken:
                    self.broken = True
                    # The node is away; when it is back, retention has passed this task.
                    world.fill(KEPT_SEGMENTS + 2)
                    world.until_forgotten(int(end["ends"][V]))
                    raise ConnectionLost("the stream broke")

    gateway = Breaking(partition.server)
    try:
        with pytest.raises(DataLoss):
            list(SpanReader(partition, gateway).batches())
    finally:
        gateway.close()


@pytest.mark.parametrize("option", ["startingTick", "startingOffsets"])
def test_a_tick_to_start_at_that_retention_has_passed_is_a_loss(world: World, option: str) -> None:
    world.append(b"before")
    at = world.call(world.log.cut, V)
    world.append(b"lost")
    world.fill(KEPT_SEGMENTS + 2)
    world.until_forgotten(int(at.ends[V]) + 1)
    world.append(b"kept")
    first = int(at.tick) + 1
    text = str(first) if option == "startingTick" else f'{{"{V}": {{"tick": {first}}}}}'
    given = {"startingOffsets": text} if option == "startingOffsets" else {option: text}
    with pytest.raises(DataLoss, match=r"behind tick \d+ were removed"):
        starting(world, **given).initialOffset()
    # Who accepts it, or names a time, gets what is left.
    at_time = {"startingTimestamp": str(first >> TICK_LOGICAL_BITS)}
    for lenient in (given | {"failOnDataLoss": "false"}, at_time):
        reader = starting(world, **lenient)
        start = reader.initialOffset()
        end = start
        while end == start:
            end = reader.latestOffset(start, ALL)
        assert values(reader, reader.partitions(start, end))[-1] == b"kept"


def starting(world: World, **given: str) -> StreamReader:
    parsed = parse({"server": world._address, "subscribe": V} | given, streaming=True)
    return StreamReader(Subscribed(parsed, declared(parsed)))


@pytest.mark.parametrize("filtered", [False, True])
def test_a_batch_query_misses_nothing_that_its_filter_leaves_out(
    world: World, *, filtered: bool
) -> None:
    world.append(b"before")
    at = world.call(world.log.cut, V)
    world.append(b"lost")
    world.fill(KEPT_SEGMENTS + 2)
    world.until_forgotten(int(at.ends[V]) + 1)
    here = world.call(world.log.cut, V)
    world.append(b"kept")
    given = {"subscribe": V, "startingTick": str(int(at.tick) + 1)}
    parsed = parse({"server": world._address} | given, streaming=False)
    reader = BatchReader(Subscribed(parsed, declared(parsed)))
    if not filtered:
        with pytest.raises(DataLoss):
            reader.partitions()
        return
    reader.push([GreaterThan(("time_tick",), int(here.tick))])
    found = [
        value.as_py()
        for partition in reader.partitions()
        for rows in reader.read(partition)
        for value in rows.column("value")
    ]
    assert found == [b"kept"]
