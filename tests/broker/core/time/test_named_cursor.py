"""The rules of named cursors, against a naive walk over what was asked and what was closed."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.naming import pchannel_names
from broker.core.time import named_cursor, tso
from broker.core.time.named_cursor import (
    AHEAD_MS_MAX,
    ALL_CHANNELS_MAX,
    CHANNELS_MAX,
    CURSORS_MAX,
    future_refusal,
    move_refusal,
    moved,
    name_refusal,
    room_refusal,
    view,
)
from broker.model.failure import StreamingCode
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.named_cursor import ChannelPosition, NamedCursor

NAMES = pchannel_names("by-dev", 3)
SHARDS = tuple(f"{name}_7v{number}" for number, name in enumerate(NAMES))


def cursor_at(tick: int, channels: Sequence[str], moved_ms: int, name: str = "c") -> NamedCursor:
    return NamedCursor(name, dict.fromkeys(channels, ChannelPosition(TimeTick(tick))), moved_ms)


HERE = cursor_at(50, SHARDS[:2], 1000)


@pytest.mark.parametrize("name", ["a", "spark/q 1", "é" * 255])
def test_a_printable_name_is_a_cursors(name: str) -> None:
    assert name_refusal(name) is None


@pytest.mark.parametrize("name", ["", "a" * 256, "a\nb", "\x00"])
def test_other_names_are_refused_and_shown(name: str) -> None:
    refusal = name_refusal(name)
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert repr(name[:40]) in refusal.cause


@pytest.mark.parametrize(
    ("before", "channels", "tick", "code", "told"),
    [
        (None, (), 5, StreamingCode.CHANNEL_NOT_EXIST, "no cursor 'c'"),
        (None, SHARDS * 2000, 5, StreamingCode.INVALID_ARGUMENT, str(CHANNELS_MAX)),
        (None, ("x" * 256,), 5, StreamingCode.INVALID_ARGUMENT, "255"),
        (None, ("by-dev-rootcoord-dml_9_7v0",), 5, StreamingCode.CHANNEL_NOT_EXIST, "dml_9_7v0"),
        (None, SHARDS, 0, StreamingCode.INVALID_ARGUMENT, "cursor tick 0 must be positive"),
        (HERE, (), 49, StreamingCode.INVALID_REQUEST_SEQ, "at tick 50 and cannot move back"),
    ],
)
def test_a_move_that_cannot_be_is_refused_with_what_is_wrong(
    before: NamedCursor | None, channels: tuple[str, ...], tick: int, code: object, told: str
) -> None:
    refusal = move_refusal("c", before, channels, tick, NAMES)
    assert refusal is not None
    assert refusal.code is code
    assert told in refusal.cause


@given(st.lists(st.tuples(st.integers(1, 9), st.sets(st.sampled_from(SHARDS))), max_size=20))
def test_a_cursor_is_at_the_largest_tick_it_was_moved_to_on_the_channels_named_last(
    moves: list[tuple[int, set[str]]],
) -> None:
    cursor: NamedCursor | None = None
    tick, channels, moved_ms = 0, tuple[str, ...](), 0
    for now_ms, (to, named) in enumerate(moves, 1):
        asked = tuple(sorted(named))
        refused = move_refusal("c", cursor, asked, to, NAMES) is not None
        assert refused == ((cursor is None and not asked) or to < tick)
        if not refused:
            moved_ms = now_ms if to > tick else moved_ms
            tick, channels = to, asked or channels
            cursor = moved("c", cursor, asked + asked, TimeTick(to), now_ms)
        assert cursor is None or cursor == cursor_at(tick, channels, moved_ms)


def test_the_same_again_changes_nothing() -> None:
    assert moved("c", HERE, (), HERE.tick, 2000) == HERE
    assert moved("c", HERE, HERE.channels, HERE.tick, 2000) == HERE


@given(
    st.dictionaries(st.sampled_from(NAMES), st.integers(1, 9).map(lambda it: tso.compose(it, 0))),
    st.sets(st.sampled_from(SHARDS), min_size=1),
    st.integers(1, 30).map(lambda it: tso.compose(it * 1000, 0)),
)
def test_a_tick_is_processed_only_where_it_is_closed(
    closed: dict[PChannelName, TimeTick], channels: set[str], tick: TimeTick
) -> None:
    closed = {name: TimeTick(it * 1000) for name, it in closed.items()}
    hosts = {NAMES[SHARDS.index(channel)] for channel in channels}
    refusal = future_refusal(tuple(channels), tick, closed)
    assert (refusal is None) == all(name in closed and closed[name] >= tick for name in hosts)
    if refusal is not None:
        far = closed and tick > max(closed.values()) + tso.compose(AHEAD_MS_MAX, 0)
        code = StreamingCode.INVALID_ARGUMENT if far else StreamingCode.INNER
        assert refusal.code is code


def test_a_channel_that_nobody_serves_is_told_apart_from_one_that_is_late() -> None:
    absent = future_refusal(SHARDS[:1], 5, {})
    late = future_refusal(SHARDS[:1], 5, {NAMES[0]: TimeTick(4)})
    assert absent is not None
    assert "has no owner now" in absent.cause
    assert late is not None
    assert "closed up to 4" in late.cause


def test_cursors_and_their_channels_are_counted() -> None:
    many = [replace(HERE, name=str(number)) for number in range(CURSORS_MAX)]
    assert room_refusal(many[1:], HERE) is None
    assert room_refusal(many, HERE) is not None
    wide = [cursor_at(50, list(map(str, range(ALL_CHANNELS_MAX - 2))), 1000)]
    assert room_refusal(wide, HERE) is None
    assert room_refusal(wide, cursor_at(50, SHARDS, 1000)) is not None


def test_a_view_says_how_old_the_tick_is_and_how_far_behind_what_is_closed() -> None:
    cursor = cursor_at(tso.compose(1000, 3), SHARDS[:2], 1000)
    ahead = {NAMES[0]: tso.compose(1400, 0), NAMES[1]: tso.compose(1250, 0)}
    seen = view(cursor, ahead, 1500)
    assert (seen.lag_ms, seen.behind_ms, seen.closed_tick) == (500, 250, ahead[NAMES[1]])
    unknown = view(cursor, {NAMES[0]: ahead[NAMES[0]]}, 900)
    assert (unknown.lag_ms, unknown.behind_ms, unknown.closed_tick) == (0, 0, 0)
    assert named_cursor.view(cursor, dict.fromkeys(NAMES, cursor.tick), 1000).behind_ms == 0


@pytest.mark.parametrize("name", ["latest", "ALL", "Earliest", "now"])
def test_no_new_cursor_is_named_like_a_place_in_the_log(name: str) -> None:
    refusal = named_cursor.new_name_refusal(name)
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert repr(name) in refusal.cause
    assert named_cursor.new_name_refusal(f"{name}-1") is None


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (ChannelPosition(TimeTick(-1)), "is not a position"),
        (ChannelPosition(TimeTick(1), MessageId(-1)), "is not a position"),
        (ChannelPosition(TimeTick(0), from_id=MessageId(-1)), "is not a position"),
        (ChannelPosition(TimeTick(51 + tso.compose(AHEAD_MS_MAX, 0))), "in the future"),
    ],
)
def test_a_position_that_nobody_can_have_reached_is_refused(
    position: ChannelPosition, words: str
) -> None:
    here = {SHARDS[0]: ChannelPosition(TimeTick(50))}
    assert named_cursor.positions_refusal(here, TimeTick(50)) is None
    refusal = named_cursor.positions_refusal({**here, SHARDS[1]: position}, TimeTick(50))
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert words in refusal.cause
    assert SHARDS[1] in refusal.cause


def test_a_commit_is_of_the_present_epoch_and_of_the_cursors_own_channels() -> None:
    position = {SHARDS[0]: ChannelPosition(TimeTick(60))}
    assert named_cursor.commit_refusal(HERE, position, HERE.epoch) is None
    outdated = named_cursor.commit_refusal(HERE, position, HERE.epoch + 1)
    assert outdated is not None
    assert outdated.code is StreamingCode.INVALID_REQUEST_SEQ
    foreign = named_cursor.commit_refusal(HERE, {SHARDS[2]: position[SHARDS[0]]}, HERE.epoch)
    assert foreign is not None
    assert foreign.code is StreamingCode.INVALID_ARGUMENT
    assert SHARDS[2] in foreign.cause
