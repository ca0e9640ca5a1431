"""What a cursor holds, and when it has lost something: one does not happen without the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.time.cursor_holds import (
    from_what_is_left,
    hold_of,
    lost_on,
    passed_refusal,
    passed_text,
    removed_refusal,
    without_those_that_moved,
)
from broker.model.failure import StreamingCode
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.named_cursor import WHOLE_TICK, ChannelPosition, NamedCursor
from broker.model.retention.holders import HolderKind, PassCause, Passed
from broker.model.retention.policy import (
    HoldLimits,
    LogStart,
)

P = PChannelName("by-dev-rootcoord-dml_0")
OTHER = PChannelName("by-dev-rootcoord-dml_1")
SHARDS = [f"{P}_7v{at}" for at in range(3)]
LIMITS = HoldLimits(1000, 60)
PLACES = st.builds(
    lambda tick, id, from_id: ChannelPosition(TimeTick(tick), MessageId(id), MessageId(from_id)),
    st.integers(0, 30),
    st.sampled_from([5, WHOLE_TICK]),
    st.integers(0, 30),
)
CURSORS = st.builds(
    lambda positions: NamedCursor("c", positions, 5_000),
    st.dictionaries(st.sampled_from(SHARDS), PLACES, min_size=1),
)


@given(CURSORS, st.integers(1, 31), st.integers(1, 31))
def test_a_removal_that_keeps_what_is_held_takes_nothing_from_the_cursor(
    cursor: NamedCursor, first_id: int, tick: int
) -> None:
    hold = hold_of(cursor, P, LIMITS)
    assert hold is not None
    start = LogStart(MessageId(first_id), TimeTick(tick))
    # Holding by neither means needing everything.
    keeps = bool(hold.tick or hold.from_id)
    keeps &= not hold.tick or hold.tick >= tick
    keeps &= not hold.from_id or hold.from_id >= first_id
    if keeps:
        assert lost_on(cursor, {P: start}) == ()
    for at in cursor.positions.values():
        if at.tick and at.closed < tick:
            assert lost_on(cursor, {P: start}) == (P,)
    assert lost_on(cursor, {OTHER: start}) == ()


@given(CURSORS, st.integers(1, 31), st.integers(1, 31))
def test_a_place_is_refused_exactly_when_it_has_lost_something(
    cursor: NamedCursor, first_id: int, tick: int
) -> None:
    starts = {P: LogStart(MessageId(first_id), TimeTick(tick))}
    refusal = removed_refusal("c", cursor.positions, starts)
    assert (refusal is not None) == bool(lost_on(cursor, starts))
    if refusal is not None:
        assert refusal.code is StreamingCode.UNRECOVERABLE
        assert f"up to tick {tick}" in refusal.cause


def test_the_beginning_is_the_first_message_that_is_left() -> None:
    starts = {P: LogStart(MessageId(40), TimeTick(7))}
    begin = {SHARDS[0]: ChannelPosition(TimeTick(0), from_id=MessageId(1))}
    assert removed_refusal("c", begin, starts) is not None
    left = from_what_is_left(begin, starts)
    assert left[SHARDS[0]].from_id == 40
    assert removed_refusal("c", left, starts) is None


def test_a_cursor_at_the_beginning_of_a_whole_log_loses_the_first_message_that_is_removed() -> None:
    start = {SHARDS[0]: ChannelPosition(TimeTick(0))}
    opened = from_what_is_left(start, {})
    assert opened[SHARDS[0]].from_id == 1
    # Also one that was stored without an id.
    for positions in (start, opened):
        cursor = NamedCursor("c", positions, 5_000)
        assert lost_on(cursor, {}) == ()
        assert lost_on(cursor, {P: LogStart(MessageId(1))}) == ()
        assert lost_on(cursor, {P: LogStart(MessageId(2), TimeTick(1))}) == (P,)


def test_a_cursor_holds_within_its_limits_and_only_where_it_has_channels() -> None:
    at = ChannelPosition(TimeTick(9), from_id=MessageId(4))
    cursor = NamedCursor("c", {SHARDS[0]: at}, moved_ms=5_000)
    hold = hold_of(cursor, P, LIMITS)
    assert hold is not None
    assert (hold.tick, hold.from_id, hold.bytes_max, hold.until_ms) == (9, 4, 1000, 65_000)
    assert hold.vchannels == {SHARDS[0]}
    everything = hold_of(NamedCursor("c", {P: at}, 5_000), P, LIMITS)
    assert everything is not None
    assert everything.vchannels == frozenset(), "of a whole pchannel"
    assert hold_of(cursor, OTHER, LIMITS) is None
    assert hold_of(cursor, P, HoldLimits(bytes_max=0)) is None
    assert hold_of(NamedCursor("c", {SHARDS[0]: at}, 5_000, holds=False), P, LIMITS) is None
    assert passed_text(LogStart(MessageId(1), TimeTick(3)), None) == (
        "messages up to tick 3 are removed"
    )


def passed(cause: PassCause, name: str = "c", kind: HolderKind = HolderKind.CURSOR) -> Passed:
    return Passed(kind, name, cause, 2000, 1000, TimeTick(7), 60_000)


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (PassCause.BYTES, "held back 2,000 bytes, more than hold_bytes_max (1,000)"),
        (PassCause.TIME, "no commit within hold_s_max"),
        (PassCause.UNASKED, "while no coordinator answered"),
    ],
)
def test_a_cursor_that_was_passed_hears_by_which_limit_and_what_to_do(
    cause: PassCause, text: str
) -> None:
    cursor = NamedCursor("c", {SHARDS[0]: ChannelPosition(TimeTick(3))}, 5_000)
    refusal = passed_refusal(cursor, P, LogStart(MessageId(9), TimeTick(7)), passed(cause))
    assert refusal.code is StreamingCode.UNRECOVERABLE
    assert text in refusal.cause
    assert "messages up to tick 7 are removed" in refusal.cause
    assert "`tidemark cursors reset c all`" in refusal.cause


def test_a_cursor_that_moved_on_or_is_gone_counts_as_passed_no_longer() -> None:
    behind = NamedCursor("behind", {SHARDS[0]: ChannelPosition(TimeTick(3))}, 5_000)
    ahead = NamedCursor("ahead", {SHARDS[0]: ChannelPosition(TimeTick(9))}, 5_000)
    cursors = {it.name: it for it in (behind, ahead)}
    group = passed(PassCause.BYTES, "readers", HolderKind.GROUP)
    all_of_them = [passed(PassCause.BYTES, name) for name in ("behind", "ahead", "dropped")]
    still = without_those_that_moved(
        [*all_of_them, group], cursors, P, LogStart(MessageId(9), TimeTick(7))
    )
    assert [it.name for it in still] == ["behind", "readers"]
