"""What changes between the choice of a micro-batch and its reading, or its replay."""

from itertools import pairwise

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

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
    assert numbers(reader, start, end) in ([1], [1, 2])


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
