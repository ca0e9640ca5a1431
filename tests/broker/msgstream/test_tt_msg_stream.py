"""Time tick streams, in memory: both clocks, and what goes wrong with them."""

import logging
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from actors.testing import run_seeded
from broker.client.errors import BadTarget, ProtocolBroken
from broker.msgstream import (
    BadPosition,
    ChannelDestroyed,
    InsertMsg,
    MemMsgStreamFactory,
    MemoryBackend,
    MsgPack,
    MsgPosition,
    SilentChannel,
    StreamOptions,
    TimeTickMsg,
    TooMuchWaits,
    TtMsgStream,
)
from broker.msgstream.backends.memory_backend import MemoryFeed
from broker.msgstream.backends.stream_backend import Feed, FeedStart, FeedStep
from tests.broker.msgstream.memory_streams import (
    NO_LINGER,
    at,
    consumer,
    names,
    producer,
    send,
    sender_options,
)

SEED = 1
"""For tests of short times: theirs is virtual, so that no machine is too slow for them."""


def by_sender(**given: Any) -> MemMsgStreamFactory:
    return MemMsgStreamFactory(options=sender_options(**given), encoded=True)


def by_log(options: StreamOptions = NO_LINGER) -> MemMsgStreamFactory:
    return MemMsgStreamFactory(options=options, encoded=True)


async def packs(stream: TtMsgStream, count: int) -> list[MsgPack]:
    found = [await stream.consume(deadline_s=5) for _ in range(count)]
    return [it for it in found if it is not None]


async def example_one(factory: MemMsgStreamFactory) -> None:
    await send(factory, "a", at(5, "a5"), 10, at(25, "a25"), at(15, "a15"), 20, 30)
    await send(factory, "b", at(8, "b8"), 10, at(12, "b12"), 20, at(22, "b22"), 30)


# ---- The clock of the senders ---------------------------------------------------------------


async def test_worked_example_one_leftovers_come_in_the_window_of_their_timestamp() -> None:
    factory = by_sender()
    await example_one(factory)
    first, second, third = await packs(await consumer(factory, "a", "b"), 3)
    assert [(it.begin_ts, it.end_ts) for it in (first, second, third)] == [
        (0, 10),
        (10, 20),
        (20, 30),
    ]
    assert [names(it) for it in (first, second, third)] == [
        ["a5", "b8"],
        ["a15", "b12"],
        ["a25", "b22"],
    ]
    assert [it.timestamp for it in second.end_positions] == [20, 20]
    assert second.start_positions == first.end_positions


async def test_worked_example_two_a_lost_tick_joins_two_windows() -> None:
    factory = by_sender()
    await send(factory, "a", at(5, "a5"), 10, at(15, "a15"), 20, 30)
    await send(factory, "b", at(8, "b8"), at(18, "b18"), 20, 30)
    first, second = await packs(await consumer(factory, "a", "b"), 2)
    assert (first.end_ts, names(first)) == (20, ["a5", "a15", "b8", "b18"])
    assert (second.begin_ts, second.end_ts, names(second)) == (20, 30, [])


@pytest.mark.parametrize("taken", [1, 2])
async def test_a_reader_that_died_continues_with_the_same_packs(taken: int) -> None:
    factory = by_sender()
    await example_one(factory)
    every = await packs(await consumer(factory, "a", "b"), 3)
    stored = [bytes(it) for it in every[taken - 1].end_positions]
    positions = [MsgPosition.parse(it) for it in stored]
    rest = await packs(await consumer(factory, "a", "b", seek=positions), 3 - taken)
    assert [names(it) for it in rest] == [names(it) for it in every[taken:]]
    assert rest[0].begin_ts == every[taken].begin_ts
    assert rest[-1].end_positions == every[-1].end_positions


async def test_what_comes_behind_its_tick_is_in_the_next_pack_counted_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    factory = by_sender()
    await send(factory, "a", at(5, "x"), 10, at(7, "late"), 20)
    stream = await consumer(factory, "a")
    with caplog.at_level(logging.WARNING, "tidemark.msgstream"):
        assert [names(it) for it in await packs(stream, 2)] == [["x"], ["late"]]
    assert stream.counters.late == 1
    assert "1 messages came behind their time tick" in caplog.text


def test_a_peer_that_stops_ticking_is_named_and_the_stream_can_be_used_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def named() -> None:
        factory = by_sender(warn_s=0.1, silent_s=0.4)
        await send(factory, "a", at(5, "x"), 10)
        await send(factory, "b", at(6, "y"))
        stream = await consumer(factory, "a", "b")
        silent = r"no time tick above 0 came from b within 0.4 s"
        with (
            caplog.at_level(logging.WARNING, "tidemark.msgstream"),
            pytest.raises(SilentChannel, match=silent) as got,
        ):
            await stream.consume()
        assert (got.value.channels, got.value.retriable) == (("b",), True)
        assert "no time tick above 0 came from b within 0.1 s; waiting on" in caplog.text
        await send(factory, "b", 10)
        assert names(await stream.consume()) == ["x", "y"]

    run_seeded(SEED, named)


async def test_a_tick_that_goes_back_is_ignored_counted_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    factory = by_sender()
    await send(factory, "a", 10, 9, at(12, "x"), 20)
    stream = await consumer(factory, "a")
    with caplog.at_level(logging.WARNING, "tidemark.msgstream"):
        assert [it.end_ts for it in await packs(stream, 2)] == [10, 20]
    assert stream.counters.ticks_back == 1
    assert "time tick 9 on a is below an earlier one" in caplog.text


def test_ticks_that_never_meet_end_windows_at_their_minimum_after_a_while() -> None:
    async def ended() -> None:
        factory = by_sender(warn_s=0.02)
        await send(factory, "a", at(12, "a12"), 15)
        await send(factory, "b", at(13, "b13"), at(19, "b19"), 20)
        stream = await consumer(factory, "a", "b")
        (pack,) = await packs(stream, 1)
        assert (pack.end_ts, names(pack), stream.counters.unmet) == (15, ["a12", "b13"], 1)
        again = await consumer(factory, "a", "b", seek=pack.end_positions)
        await send(factory, "a", 20)
        assert [names(it) for it in await packs(again, 1)] == [["b19"]]

    run_seeded(SEED, ended)


async def test_a_full_buffer_without_ticks_is_an_error_that_names_the_channel() -> None:
    factory = by_sender(buffer_bytes=100)
    await send(factory, "a", *[at(number, "x" * 40) for number in range(1, 9)])
    await send(factory, "b", 10)
    stream = await consumer(factory, "a", "b")
    with pytest.raises(TooMuchWaits, match="100 bytes wait for a time tick of a, b") as got:
        await stream.consume()
    assert (got.value.channels, got.value.bytes_max) == (("a", "b"), 100)


async def test_a_full_buffer_ends_a_window_when_every_channel_has_had_a_tick() -> None:
    factory = by_sender(buffer_bytes=100)
    await send(factory, "a", 4, *[at(number, "x" * 40) for number in range(5, 14)])
    await send(factory, "b", 5)
    stream = await consumer(factory, "a", "b")
    (pack,) = await packs(stream, 1)
    assert (pack.end_ts, names(pack)) == (4, [])


async def test_the_reader_of_a_destroyed_channel_gets_its_windows_and_then_the_error() -> None:
    factory = by_sender()
    await send(factory, "a", at(5, "x"), 10)
    await send(factory, "b", 10)
    stream = await consumer(factory, "a", "b")
    factory.memory.destroy("a")
    assert names(await stream.consume()) == ["x"]
    with pytest.raises(ChannelDestroyed, match="channel a was destroyed"):
        await stream.consume()


async def test_a_pack_by_the_senders_has_no_place_among_the_ticks_of_the_log() -> None:
    factory = by_sender()
    await send(factory, "a", 10)
    stream = await consumer(factory, "a")
    (pack,) = await packs(stream, 1)
    with pytest.raises(BadPosition, match="ends at no tick of the log"):
        await stream.spark_offset(pack)
    with pytest.raises(BadPosition, match="an offset of Spark is a tick of the log"):
        await consumer(factory, "a", seek={"tick": 5, "ends": {"a": 6}})


class LyingBackend(MemoryBackend):
    """Says that a tick is closed that is not."""

    def feeds(self, starts: Mapping[str, FeedStart], *, apart: bool) -> list[Feed]:
        return [LyingFeed(self, name, start) for name, start in starts.items()]


class LyingFeed(MemoryFeed):
    async def next(self) -> FeedStep:
        step = await super().next()
        return FeedStep(step.lot, step.closed + 1)


async def test_a_log_that_breaks_its_promise_is_an_error_and_no_wrong_window() -> None:
    factory = MemMsgStreamFactory(LyingBackend(), NO_LINGER)
    stream = await consumer(factory, "a")
    await send(factory, "a", at(1, "x"))
    assert names(await stream.consume()) == ["x"]
    await send(factory, "a", at(1, "y"))
    with pytest.raises(ProtocolBroken, match="delivered a message with tick 2 after it had closed"):
        await stream.consume()


# ---- The clock of the log -------------------------------------------------------------------


async def test_nobody_has_to_send_ticks_and_an_idle_channel_delays_nothing() -> None:
    factory = by_log()
    stream = await consumer(factory, "a", "idle")
    await send(factory, "a", at(5, "x"), at(3, "y"))
    (pack,) = await packs(stream, 1)
    assert (pack.begin_ts, pack.end_ts, names(pack)) == (0, 2, ["x", "y"])


async def test_time_ticks_of_senders_are_no_data_of_a_window() -> None:
    factory = by_log()
    await send(factory, "a", at(5, "x"), 10)
    (pack,) = await packs(await consumer(factory, "a"), 1)
    assert names(pack) == ["x"]


async def test_packs_are_the_log_once_in_windows_that_follow_each_other() -> None:
    factory = by_log()
    stream = await consumer(factory, "a", "b")
    found: list[MsgPack] = []
    for number in range(30):
        await send(factory, "ab"[number % 2], at(1, f"m{number}"))
        if number % 4 == 0:
            found += await packs(stream, 1)
    while sum(len(it.msgs) for it in found) < 30:
        found += await packs(stream, 1)
    assert sorted(name for it in found for name in names(it)) == sorted(
        f"m{number}" for number in range(30)
    )
    for before, after in pairwise(found):
        assert before.end_ts == after.begin_ts < after.end_ts
        assert after.start_positions == before.end_positions
    for index, pack in enumerate(found):
        again = await consumer(factory, "a", "b", seek=pack.end_positions)
        suffix = [name for it in found[index + 1 :] for name in names(it)]
        got: list[str] = []
        while len(got) < len(suffix):
            got += [name for it in await packs(again, 1) for name in names(it)]
        assert sorted(got) == sorted(suffix)


async def test_the_end_of_a_pack_is_an_offset_of_spark_and_an_offset_starts_a_stream() -> None:
    factory = by_log()
    await send(factory, "a", at(1, "x"))
    stream = await consumer(factory, "a", "b")
    (pack,) = await packs(stream, 1)
    offset = await stream.spark_offset(pack)
    assert offset == {"ends": {"a": 2, "b": 2}, "tick": 1}
    assert (await stream.cut(pack)).tick == 1
    await send(factory, "b", at(1, "y"))
    again = await consumer(factory, "a", "b", seek=offset)
    assert [names(it) for it in await packs(again, 1)] == [["y"]]
    ahead = '{"ahead": {"b": 2}, "ends": {"a": 0, "b": 3}, "tick": 0}'
    await send(factory, "a", at(1, "z"))
    third = await consumer(factory, "a", "b", seek=ahead)
    assert sorted(name for it in await packs(third, 1) for name in names(it)) == ["x", "z"]


async def test_channels_that_continue_at_different_ticks_give_nothing_twice() -> None:
    factory = by_log()
    await send(factory, "a", at(1, "a1"), at(1, "a2"))
    await send(factory, "b", at(1, "b3"))
    (pack,) = await packs(await consumer(factory, "a", "b"), 1)
    end = {it.channel_name: it for it in pack.end_positions}["a"]
    stream = await consumer(factory, "a", "b", seek=end)
    await send(factory, "a", at(1, "a4"))
    got: list[str] = []
    while len(got) < 2:
        got += [name for it in await packs(stream, 1) for name in names(it)]
    assert sorted(got) == ["a4", "b3"]


async def test_an_empty_pack_is_true_and_says_how_much_the_log_had() -> None:
    factory = by_log()
    stream = await consumer(factory, "a")
    await send(factory, "other", at(1, "x"))
    pack = await stream.consume()
    assert pack
    assert len(pack) == 0  # type: ignore[arg-type]
    with pytest.raises(BadTarget, match="nothing in this stream was appended as Arrow rows"):
        pack.rows()  # type: ignore[attr-defined]


def test_a_log_that_stands_still_is_named() -> None:
    async def named() -> None:
        stream = await consumer(by_log(StreamOptions(warn_s=0.1, silent_s=0.1)), "a")
        with pytest.raises(SilentChannel, match=r"came from a within 0.1 s"):
            await stream.consume()

    run_seeded(SEED, named)


@pytest.mark.parametrize("make", [by_log, by_sender])
async def test_a_cancelled_consume_of_windows_loses_nothing(
    make: Callable[[], MemMsgStreamFactory],
) -> None:
    factory = make()
    stream = await consumer(factory, "a", "b")
    ticker = await producer(factory, "a", "b")
    found: list[str] = []

    async def consume() -> None:
        found.extend(names(await stream.consume()))

    for number in range(1, 41):
        await send(factory, "ab"[number % 2], at(number, f"m{number}"))
        await ticker.broadcast(MsgPack([TimeTickMsg.at(number)]))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            for _ in range(number % 9):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    while len(found) < 40:
        found += names(await stream.consume(deadline_s=5))
    assert sorted(found) == sorted(f"m{number}" for number in range(1, 41))


async def test_rows_with_many_timestamps_come_in_the_window_of_the_last() -> None:
    factory = by_sender()
    stream = await producer(factory, "a")
    wide = InsertMsg.of_rows([b"p", b"q"], row_ids=[1, 2], timestamps=[5, 15], hash_keys=[0, 0])
    await stream.broadcast(MsgPack([wide, TimeTickMsg.at(10), TimeTickMsg.at(20)]))
    first, second = await packs(await consumer(factory, "a"), 2)
    assert (len(first.msgs), len(second.msgs)) == (0, 1)


def test_the_options_name_a_clock() -> None:
    assert StreamOptions().clock == "log"
