"""What changes between the choice of a micro-batch and its reading, or its replay."""

from itertools import pairwise

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from broker.spark.gateway import Gateway
from broker.spark.refusals import DataLoss
from broker.spark.server_options import server_of
from broker.spark.source import next_cut
from broker.spark.source.progress_report import ProgressReporter
from broker.spark.source.stream_reader import StreamReader
from tests.broker.spark.source import test_stream_reader
from tests.broker.spark.source.test_purged_ranges import purge_now
from tests.broker.spark.source.test_stream_reader import World, numbers, run

world = test_stream_reader.world
ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_cut, "LOOK_AGAIN_S", 0.0)


def by_pattern(world: World, prefix: str, *, loss: str = "true") -> StreamReader:
    return world.stream("", subscribe=None, subscribePattern=f"{prefix}_.", failOnDataLoss=loss)


@pytest.mark.parametrize("restarted", [False, True])
def test_rows_of_a_collection_that_joined_and_was_purged_since_are_a_loss(
    world: World, restarted: bool
) -> None:
    prefix = f"joined{restarted}".lower()
    world.append(world.make(f"{prefix}_1"), 1)
    reader = by_pattern(world, prefix)
    _, before = run(reader, reader.initialOffset(), ALL)
    second = world.make(f"{prefix}_2")
    world.append(second, *range(10, 16))
    # As Spark: each offset is written down, and the range up to it is read, or read again.
    offsets = [before]
    while (end := reader.latestOffset(offsets[-1], ALL)) != offsets[-1]:
        offsets.append(end)
    reader = by_pattern(world, prefix) if restarted else reader
    purge_now(world, second)
    with pytest.raises(DataLoss):
        _ = [numbers(reader, start, end) for start, end in pairwise(offsets)]


@pytest.mark.parametrize("dropped", [False, True])
def test_rows_that_are_held_back_when_their_collection_joins_are_not_lost_in_silence(
    world: World, *, dropped: bool
) -> None:
    prefix = f"held_back{dropped}".lower()
    first = world.make(f"{prefix}_1")
    world.append(first, 1)
    reader = by_pattern(world, prefix)
    _, before = run(reader, reader.initialOffset(), ALL)
    second, few = world.make(f"{prefix}_2"), ReadMinRows(3)
    world.append(second, 2)
    joined = reader.latestOffset(before, few)
    assert numbers(reader, before, joined) == []
    assert reader.latestOffset(joined, few) == joined, "one empty micro-batch"
    if dropped:
        world.do(lambda log: log.collections.drop(second))
    else:
        purge_now(world, second)
    world.append(first, 3, 4, 5)
    with pytest.raises(DataLoss):
        numbers(reader, joined, reader.latestOffset(joined, few))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_micro_batch_with_a_collection_that_was_dropped_since_is_left_behind(
    world: World, restarted: bool
) -> None:
    prefix = f"dropped{restarted}".lower()
    kept, dropped = world.make(f"{prefix}_1"), world.make(f"{prefix}_2")
    world.append(kept, 1)
    world.append(dropped, 2)
    reader = by_pattern(world, prefix, loss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    world.do(lambda log: log.collections.drop(dropped))
    reader = by_pattern(world, prefix, loss="false") if restarted else reader
    assert numbers(reader, start, end) == [1]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_collection_that_joined_and_was_dropped_with_nothing_to_read_ends_no_query(
    world: World, restarted: bool
) -> None:
    prefix = f"joined_dropped{restarted}".lower()
    first = world.make(f"{prefix}_1")
    world.append(first, 1)
    reader = by_pattern(world, prefix)
    _, start = run(reader, reader.initialOffset(), ALL)
    second = world.make(f"{prefix}_2")
    end = reader.latestOffset(start, ALL)
    assert len(end["ends"]) == 2 * len(start["ends"])
    world.do(lambda log: log.collections.drop(second))
    reader = by_pattern(world, prefix) if restarted else reader
    assert numbers(reader, start, end) == []
    world.append(first, 2)
    assert numbers(reader, end, reader.latestOffset(end, ALL)) == [2]


def test_one_that_was_read_whole_and_dropped_while_others_catch_up_is_no_loss(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_cut, "LOOK_AGAIN_S", 1e9)
    first = world.make("ahead_1")
    world.append(first, 1)
    reader = by_pattern(world, "ahead")
    begin = reader.initialOffset()
    second = world.make("ahead_2")
    world.append(second, *range(10, 20))
    world.append(first, 2)
    start = reader.latestOffset(begin, ALL)  # the first alone, whole
    reader = by_pattern(world, "ahead")
    joined = reader.latestOffset(start, ReadMaxRows(2))
    end = reader.latestOffset(joined, ReadMaxRows(2))
    assert "ahead" in end
    before = numbers(reader, joined, end)
    assert before
    world.do(lambda log: log.collections.drop(first))
    assert numbers(reader, joined, end) == before


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_pattern_whose_only_collection_is_made_again_goes_on_with_the_new_one(
    world: World, loss: str, rows: bool
) -> None:
    prefix = f"again{loss}{rows}".lower()
    name = world.make(f"{prefix}_1")
    world.append(name, *([1] if rows else []))
    reader = by_pattern(world, prefix, loss=loss)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL) if rows else start
    world.do(lambda log: log.collections.drop(name))
    world.append(world.make(name), 7)
    reader = by_pattern(world, prefix, loss=loss)
    if rows and loss == "true":
        with pytest.raises(DataLoss):
            numbers(reader, start, end)
        return
    assert numbers(reader, start, end) == []
    found, _ = run(reader, end, ALL)
    assert [it for each in found for it in each] == [7]


def test_a_barrier_gets_reports_after_a_token_was_replaced(world: World) -> None:
    name = world.make("reported")
    vchannels = world.do(lambda log: log.collections.get(name)).vchannels
    gateway = Gateway(server_of({"server": world.address}))
    reporter = ProgressReporter("reported")
    reporter.processed(gateway, vchannels, gateway.cut(vchannels).tick)
    gateway.close()  # as `renew` does
    tick = gateway.cut(vchannels).tick
    reporter.processed(gateway, vchannels, tick)
    (barrier,) = [it for it in world.do(lambda log: log.barriers.list()) if it.name == "reported"]
    gateway.close()
    assert barrier.tick == tick
