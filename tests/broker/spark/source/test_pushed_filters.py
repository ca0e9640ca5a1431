"""Filters of a batch query become ranges that the broker keeps to, or are left to Spark."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from broker.spark.source.batch_reader import BatchReader
from broker.spark.source.pushed_filters import EPOCH, OF_MESSAGES, OF_ROWS, pushed
from broker.spark.source.source_options import parse
from broker.spark.source.subscribed import Subscribed, declared
from tests.broker.spark.source import test_stream_reader
from tests.broker.spark.source.test_stream_reader import World, rows_of

world = test_stream_reader.world
COMPARED: dict[type[Filter], Any] = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}
MS = st.integers(0, 5)


@given(st.sampled_from(list(COMPARED)), st.integers(0, 5000), MS, st.integers(0, (1 << 18) - 1))
def test_a_range_has_exactly_the_ticks_whose_time_fulfils_the_filter(
    kind: Any, microseconds: int, tick_ms: int, logical: int
) -> None:
    moment = EPOCH + timedelta(microseconds=microseconds)
    found, left = pushed([kind(("_timestamp",), moment)], OF_ROWS)
    tick = (tick_ms << 18) + logical
    fulfilled = COMPARED[kind](EPOCH + timedelta(milliseconds=tick_ms), moment)
    # Tick 0 is no message's.
    assert tick == 0 or (found.after < tick <= found.until) == fulfilled
    assert left == []


@given(st.lists(st.tuples(st.sampled_from(list(COMPARED)), st.integers(-3, 9))), st.integers(1, 9))
def test_a_range_has_exactly_the_ticks_that_fulfil_all_filters(
    filters: list[tuple[Any, int]], tick: int
) -> None:
    found, _ = pushed([kind(("time_tick",), value) for kind, value in filters], OF_MESSAGES)
    fulfilled = all(COMPARED[kind](tick, value) for kind, value in filters)
    assert (found.after < tick <= found.until) == fulfilled


@pytest.mark.parametrize(
    "left",
    [
        IsNotNull(("n",)),
        GreaterThan(("time_tick",), 5),
        EqualTo(("vchannel",), "v"),
        Not(EqualTo(("_time_tick",), 5)),
        In(("_time_tick",), (5, 6)),
        EqualTo(("_time_tick",), None),
        EqualTo(("place", "time_tick"), 5),
        EqualTo(("n",), 5),
        GreaterThan(("_vchannel",), "a"),
        GreaterThan(("_timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001
    ],
    ids=str,
)
def test_what_no_range_can_fulfil_is_left_to_spark(left: Filter) -> None:
    taken = EqualTo(("_vchannel",), "v")
    found, others = pushed([left, taken, IsNotNull(("_time_tick",))], OF_ROWS)
    assert others == [left]
    assert found.vchannels == frozenset({"v"})
    assert (found.after, found.until) == (0, (1 << 63) - 1)


def filtered(world: World, name: str, *filters: Filter) -> tuple[list[int], int]:
    """The rows of a query with these filters, and the bytes that it made the broker send."""
    given = {"server": world.address, "subscribe": name, "columns": "n"}
    parsed = parse(given, streaming=False)
    reader = BatchReader(Subscribed(parsed, declared(parsed)))
    assert reader.push(list(filters)) == []
    before = world.sent()
    found = sorted(row["n"] for row in rows_of(reader))
    return found, world.sent() - before


def test_the_broker_sends_only_what_the_filters_leave(world: World) -> None:
    name = world.make("filtered")
    world.append(name, *range(120))
    rows = sorted(world.batch(name), key=lambda row: row["n"])
    everything, all_bytes = filtered(world, name)
    assert everything == list(range(120))
    first, last = rows[50]["_time_tick"], rows[59]["_time_tick"]
    some, size = filtered(
        world, name, GreaterThanOrEqual(("_time_tick",), first), LessThan(("_time_tick",), last)
    )
    assert some == list(range(50, 59))
    assert size <= all_bytes // 4
    moment = datetime.fromtimestamp((first >> 18) / 1000, UTC)
    late, size = filtered(world, name, GreaterThan(("_timestamp",), moment))
    assert late == [row["n"] for row in rows if row["_time_tick"] >> 18 > first >> 18]
    assert size < all_bytes
    own = rows[0]["_vchannel"]
    one, size = filtered(world, name, In(("_vchannel",), (own, "none")))
    assert one == [row["n"] for row in rows if row["_vchannel"] == own]
    assert size < all_bytes
    assert filtered(world, name, EqualTo(("_vchannel",), "none"))[:1] == ([],)
    future = GreaterThan(("_time_tick",), (1 << 63) - 1)
    assert filtered(world, name, future) == ([], 0)
    assert filtered(world, name, LessThanOrEqual(("_time_tick",), (1 << 63) - 1))[0] == everything
