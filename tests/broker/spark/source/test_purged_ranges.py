"""A range that was read before and purged since is refused; one without a loss is read."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker.client import Client
from broker.client.cluster.space_calls import Purged
from broker.spark.gateway import Gateway
from broker.spark.refusals import DataLoss
from broker.spark.source.reading import SpanPartition, SpanReader
from tests.broker.spark.source import test_stream_reader
from tests.broker.spark.source.test_stream_reader import World, numbers

world = test_stream_reader.world
ALL = ReadAllAvailable()


def purge_now(world: World, name: str) -> list[Purged]:
    async def purge(log: Client) -> list[Purged]:
        found = await log.collections.get(name)
        return await log.purge(name, upto=(await log.cut(found.vchannels)).tick)

    done: list[Purged] = world.do(purge)
    return done


def batch_of(world: World, name: str, start: Any) -> Any:
    """Where a micro-batch of all there is ends, for a query that has just started."""
    return world.stream(name).latestOffset(start, ALL)


def test_a_micro_batch_that_was_purged_whole_is_refused_and_not_empty(world: World) -> None:
    name = world.make("purged_whole")
    world.append(name, *range(6))
    start = batch_of(world, name, world.stream(name).initialOffset())
    world.append(name, *range(6, 12))
    end = batch_of(world, name, start)
    assert numbers(world.stream(name), start, end) == list(range(6, 12))
    purge_now(world, name)
    with pytest.raises(DataLoss, match="removed by a purge"):
        numbers(world.stream(name), start, end)
    assert numbers(world.stream(name, failOnDataLoss="false"), start, end) == []


def test_a_micro_batch_that_was_purged_in_part_is_refused(world: World) -> None:
    name = world.make("purged_partly")
    first = world.stream(name).initialOffset()
    world.append(name, *range(6))
    second = batch_of(world, name, first)
    world.append(name, *range(6, 12))
    purge_now(world, name)
    world.append(name, *range(12, 24))
    end = batch_of(world, name, second)
    for start in (first, second):
        with pytest.raises(DataLoss, match="removed by a purge"):
            numbers(world.stream(name), start, end)


def test_a_query_that_has_read_everything_goes_on_behind_a_purge(world: World) -> None:
    name = world.make("purged_after")
    world.append(name, *range(12))
    start = batch_of(world, name, world.stream(name).initialOffset())
    purge_now(world, name)
    world.append(name, *range(12, 15))
    end = batch_of(world, name, start)
    assert numbers(world.stream(name), start, end) == [12, 13, 14]


def test_a_query_from_earliest_begins_behind_a_purge(world: World) -> None:
    name = world.make("purged_before")
    world.append(name, *range(6))
    purge_now(world, name)
    world.append(name, *range(6, 12))
    assert sorted(row["n"] for row in world.batch(name)) == list(range(6, 12))
    reader = world.stream(name)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert numbers(reader, start, end) == list(range(6, 12))
    purge_now(world, name)
    with pytest.raises(DataLoss, match="removed by a purge"):
        numbers(world.stream(name), start, end)


def test_a_purge_is_no_transaction_that_retention_has_cut(world: World) -> None:
    name = world.make("purged_cut")
    world.append(name, *range(6))
    reader = world.stream(name)
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ALL))
    purge_now(world, name)
    for partition in partitions:
        assert isinstance(partition, SpanPartition)
        span = partition.span
        # As in a log whose beginning retention has removed.
        begun = type(span)(span.vchannels, span.start, span.end_tick, beginning=2)
        read = type(partition)(
            begun, partition.server, partition.shape, partition.fail_on_data_loss, True
        )
        gateway = Gateway(partition.server)
        with pytest.raises(DataLoss):
            list(SpanReader(read, gateway).batches())
        gateway.close()


def test_a_micro_batch_that_is_purged_while_it_is_planned_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = world.make("purged_meanwhile")
    world.append(name, *range(6))
    start = batch_of(world, name, world.stream(name).initialOffset())
    world.append(name, *range(6, 12))
    end = batch_of(world, name, start)
    held = Gateway.held

    def held_and_then_purged(gateway: Gateway, vchannels: Any) -> Any:
        found = held(gateway, vchannels)
        monkeypatch.setattr(Gateway, "held", held)
        purge_now(world, name)
        return found

    monkeypatch.setattr(Gateway, "held", held_and_then_purged)
    with pytest.raises(DataLoss, match="removed by a purge"):
        numbers(world.stream(name), start, end)
