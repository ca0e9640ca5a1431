"""Limits, lags and losses of a query over rows whose definitions change meanwhile."""

import re

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from broker.spark.refusals import DataLoss
from tests.broker.spark.source import test_starts, test_stream_reader
from tests.broker.spark.source.test_stream_reader import World, numbers, run

world = test_stream_reader.world
looks_always = test_starts.looks_always


def changed(world: World, name: str, part: str) -> None:
    """A partition comes, and goes."""
    world.do(lambda log: log.master.create_partition(name, part))
    world.do(lambda log: log.master.drop_partition(name, part))


def test_each_micro_batch_has_as_many_rows_as_the_limit_allows(world: World) -> None:
    name = world.make("defined")
    for n in range(20):
        world.append(name, n)
        changed(world, name, f"p{n}")
    reader = world.stream(name)
    batches, end = run(reader, reader.initialOffset(), ReadMaxRows(4))
    assert [len(it) for it in batches] == [4] * 5
    assert sorted(n for batch in batches for n in batch) == list(range(20))
    assert end["ends"].keys()


def test_a_change_alone_makes_no_micro_batch(world: World) -> None:
    name = world.make("unchanged")
    world.append(name, 1)
    reader = world.stream(name)
    _, end = run(reader, reader.initialOffset(), ReadAllAvailable())
    changed(world, name, "p")
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    world.append(name, 2)
    assert numbers(reader, end, reader.latestOffset(end, ReadAllAvailable())) == [2]


@pytest.mark.usefixtures("looks_always")
def test_the_rows_that_a_dropped_collection_has_left_are_counted_exactly(world: World) -> None:
    kept, dropped = world.make("counted_1"), world.make("counted_2")
    world.append(kept, 1)
    world.append(dropped, 2, 3, 4)
    changed(world, dropped, "p")
    strict = world.stream("", subscribe=None, subscribePattern="counted_.")
    start = strict.initialOffset()
    world.do(lambda log: log.collections.drop(dropped))
    with pytest.raises(DataLoss) as lost:
        strict.latestOffset(start, ReadAllAvailable())
    assert sum(map(int, re.findall(r"has (\d+) unread rows", str(lost.value)))) == 3


@pytest.mark.usefixtures("looks_always")
def test_a_collection_that_is_dropped_when_all_was_read_is_no_loss(world: World) -> None:
    kept, dropped = world.make("done_1"), world.make("done_2")
    world.append(dropped, 2)
    reader = world.stream("", subscribe=None, subscribePattern="done_.")
    _, end = run(reader, reader.initialOffset(), ReadAllAvailable())
    world.do(lambda log: log.collections.drop(dropped))
    world.append(kept, 1)
    assert numbers(reader, end, reader.latestOffset(end, ReadAllAvailable())) == [1]
