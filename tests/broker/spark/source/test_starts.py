"""Where each vchannel of a query starts, and collections that join while it runs."""

import json
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from broker.client import Client
from broker.spark.refusals import BadColumns, BadOption, DataLoss
from broker.spark.source import next_cut
from tests.broker.spark.source import test_stream_reader
from tests.broker.spark.source.test_purged_ranges import purge_now
from tests.broker.spark.source.test_stream_reader import SCHEMA, World, numbers, run

world = test_stream_reader.world
PLAIN = SCHEMA.remove(2)
OTHER_COLUMNS = PLAIN.remove(0)


def vchannels(world: World, name: str) -> list[str]:
    return list(world.do(lambda log: log.collections.get(name)).vchannels)


def by_vchannel(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["n"]):
        found.setdefault(row["_vchannel"], []).append(row)
    return found


def test_each_vchannel_starts_where_it_is_told_by_id_tick_time_or_word(world: World) -> None:
    name = world.make("each")
    world.append(name, *range(60))
    rows = by_vchannel(world.batch(name))
    a, b, c = vchannels(world, name)
    middle, late = rows[a][len(rows[a]) // 2], rows[b][-2]
    starts = {a: {"id": middle["_message_id"]}, b: {"tick": late["_time_tick"]}, c: "latest"}
    expected = [
        *(row["n"] for row in rows[a] if row["_message_id"] >= middle["_message_id"]),
        *(row["n"] for row in rows[b] if row["_time_tick"] >= late["_time_tick"]),
    ]
    reader = world.stream(name, startingOffsets=json.dumps(starts))
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    assert reader.latestOffset(start, ReadAllAvailable()) == start, "it must be written first"
    world.append(name, 100, 101, 102, 103)
    batches, end = run(reader, start, ReadMaxRows(3))
    assert sorted(n for batch in batches for n in batch) == sorted([*expected, 100, 101, 102, 103])
    assert max(map(len, batches)) <= 3
    assert set(end) == {"ends", "tick"}, "all vchannels are at one tick in the end"
    (at_once,), _ = run(world.stream(name), start, ReadAllAvailable())
    assert at_once == sorted([*expected, 100, 101, 102, 103]), "without a limit it is one batch"
    times = {a: "earliest", b: {"timestamp": late["_time_tick"] >> 18}, c: "latest"}
    with pytest.raises(BadOption, match="cannot start at latest"):
        world.batch(name, startingOffsets=json.dumps(times))
    found = by_vchannel(world.batch(name, startingOffsets=json.dumps(times | {c: "earliest"})))
    assert found[b][0]["_time_tick"] >> 18 >= late["_time_tick"] >> 18
    assert len(found[a]) >= len(rows[a])


def test_an_id_behind_the_last_message_is_the_end_and_one_that_is_not_there_is_refused(
    world: World,
) -> None:
    name = world.make("ids")
    world.append(name, 1, 2, 3)
    names = vchannels(world, name)
    held = world.do(lambda log: log.offsets.describe(names))
    ends = {one: {"id": int(it.next_id)} for one, it in held.items()}
    reader = world.stream(name, startingOffsets=json.dumps(ends))
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    world.append(name, 7)
    assert numbers(reader, start, reader.latestOffset(start, ReadAllAvailable())) == [7]
    beyond = {one: {"id": 1 << 40} for one in names}
    with pytest.raises(BadOption, match=r"holds ids \[\d+, \d+\); or use earliest or latest"):
        world.stream(name, startingOffsets=json.dumps(beyond)).initialOffset()


@pytest.mark.parametrize(
    ("starts", "told"),
    [
        ({"nothing": "earliest"}, "it names 'nothing', which is not read"),
        ({}, "it has no start for"),
        ({"between": "earliest", "V": "latest"}, "twice"),
    ],
)
def test_starts_that_are_not_one_for_each_vchannel_are_refused(
    world: World, starts: dict[str, str], told: str
) -> None:
    if "between" not in {it.name for it in world.do(lambda log: log.collections.list())}:
        world.make("between")
    first, *_ = vchannels(world, "between")
    given = {first if name == "V" else name: start for name, start in starts.items()}
    with pytest.raises(BadOption, match=told):
        world.stream("between", startingOffsets=json.dumps(given)).initialOffset()


def test_a_query_starts_behind_a_named_cursor(world: World) -> None:
    name = world.make("resumed")
    world.append(name, *range(10))
    fifth = sorted(world.batch(name), key=lambda row: row["n"])[4]["_time_tick"]
    world.do(lambda log: log.cursor("by-hand").move(fifth, [name]))
    assert sorted(row["n"] for row in world.batch(name, startingCursor="by-hand")) == [
        5,
        6,
        7,
        8,
        9,
    ]

    async def commit_one(log: Client) -> list[int]:
        cursor = log.cursor("by-reader")
        async for rows in log.read_arrow(name, start=cursor, until="now"):
            await cursor.commit(rows)
            return list(rows.column("n").to_pylist())
        return []

    committed = world.do(commit_one)
    assert 0 < len(committed) < 10
    rest = [row["n"] for row in world.batch(name, startingCursor="by-reader")]
    assert sorted([*rest, *committed]) == list(range(10)), "each vchannel from its own position"
    with pytest.raises(BadOption, match="'startingCursor' is 'nobody'"):
        world.batch(name, startingCursor="nobody")
    other = world.make("resumed_other")
    with pytest.raises(BadOption, match="it has no position on"):
        world.batch(other, startingCursor="by-hand")


def test_a_query_starts_where_a_consumer_group_stands(world: World) -> None:
    name = world.make("worked_off")
    world.append(name, *range(10))

    async def acknowledge(log: Client) -> set[int]:
        floors = {}
        async with log.group("workers").join(name) as member:
            done = 0
            async for batch in member:
                floors[batch.vchannel] = {int(it.tick) for it in batch.messages}
                await batch.ack()
                done += len(batch)
                if done == 10:
                    break
        return set().union(*floors.values())

    acknowledged = world.do(acknowledge)
    assert len(acknowledged) == 10
    world.append(name, 10, 11)
    assert sorted(row["n"] for row in world.batch(name, startingGroup="workers")) == [10, 11]
    with pytest.raises(BadOption, match=r"'startingGroup' is 'nobody'.*there is no group 'nobody'"):
        world.batch(name, startingGroup="nobody")


@pytest.fixture
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_cut, "LOOK_AGAIN_S", 0.0)


@pytest.mark.usefixtures("looks_always")
def test_a_collection_that_matches_later_is_read_from_its_beginning_within_the_limits(
    world: World,
) -> None:
    first = world.make("sales_1")
    world.make("unrelated")
    world.append(first, 1, 2, 3)
    reader = world.stream("", subscribe=None, subscribePattern="sales_.*")
    start = reader.initialOffset()
    _, end = run(reader, start, ReadAllAvailable())
    assert numbers(reader, start, end) == [1, 2, 3]
    second = world.make("sales_2")
    world.append(second, *range(10, 20))
    world.append(first, 4)
    world.append(second, 20)
    batches, later = run(reader, end, ReadMaxRows(4))
    assert sorted(n for batch in batches for n in batch) == [4, *range(10, 21)]
    assert max(map(len, batches)) <= 4
    assert len(later["ends"]) == 2 * len(end["ends"])
    restarted = world.stream("", subscribe=None, subscribePattern="sales_.*")
    world.append(second, 21)
    again = restarted.latestOffset(end, ReadAllAvailable())
    assert numbers(restarted, end, again) == [4, *range(10, 22)]
    world.do(lambda log: log.collections.drop(second))
    world.append(first, 5)
    assert numbers(reader, again, reader.latestOffset(again, ReadAllAvailable())) == [5]


@pytest.mark.usefixtures("looks_always")
def test_unread_rows_of_a_collection_that_was_dropped_are_a_loss(world: World) -> None:
    kept, dropped = world.make("lost_1"), world.make("lost_2")
    world.append(kept, 1)
    world.append(dropped, 2)
    strict = world.stream("", subscribe=None, subscribePattern="lost_.")
    lenient = world.stream("", subscribe=None, subscribePattern="lost_.", failOnDataLoss="false")
    start = strict.initialOffset()
    world.do(lambda log: log.collections.drop(dropped))
    with pytest.raises(DataLoss, match="of a dropped collection has 1 unread rows"):
        strict.latestOffset(start, ReadAllAvailable())
    assert numbers(lenient, start, lenient.latestOffset(start, ReadAllAvailable())) == [1]


@pytest.mark.usefixtures("looks_always")
def test_rows_that_were_removed_unread_before_their_collection_was_dropped_are_a_loss(
    world: World,
) -> None:
    kept, dropped = world.make("removed_1"), world.make("removed_2")
    world.append(dropped, 2)
    strict = world.stream("", subscribe=None, subscribePattern="removed_.")
    lenient = world.stream("", subscribe=None, subscribePattern="removed_.", failOnDataLoss="false")
    start = strict.initialOffset()
    _, done = run(strict, start, ReadAllAvailable())
    purge_now(world, dropped)
    world.do(lambda log: log.collections.drop(dropped))
    world.append(kept, 1)
    with pytest.raises(DataLoss, match=r"had unread rows up to tick .* are removed"):
        strict.latestOffset(start, ReadAllAvailable())
    assert numbers(lenient, start, lenient.latestOffset(start, ReadAllAvailable())) == [1]
    assert numbers(strict, done, strict.latestOffset(done, ReadAllAvailable())) == [1]


@pytest.mark.usefixtures("looks_always")
def test_a_collection_with_other_columns_that_joins_ends_the_query_by_name(world: World) -> None:
    world.make("fit_1", PLAIN)
    reader = world.stream("", subscribe=None, subscribePattern="fit_.*")
    start = reader.initialOffset()
    world.make("fit_2", OTHER_COLUMNS)
    with pytest.raises(BadColumns, match="'n'"):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(BadOption, match="fit_1 and fit_2 have other columns"):
        world.stream("", subscribe=None, subscribePattern="fit_.*", columns=None)


def test_a_pattern_that_nothing_matches_is_refused_with_what_there_is(world: World) -> None:
    world.make("something")
    with pytest.raises(BadOption, match="no collection matches; there are: "):
        world.batch("", subscribe=None, subscribePattern="nothing_at_all")
