"""What holds keep of what is dead, against a naive model."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.space.space_floors import not_held
from broker.model.ids import MessageId
from broker.model.retention.dead import Dead
from broker.model.retention.holders import Hold, HolderKind
from tests.broker.core.space.test_removal import log

NAMES = ("a", "b", "c")
NOW_MS = 100
SEGMENTS = log([100] * 10)
FLOORS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 100).map(MessageId))


@st.composite
def holds(draw: st.DrawFn) -> Hold:
    return Hold(
        draw(st.sampled_from(HolderKind)),
        draw(st.sampled_from("xyz")),
        from_id=MessageId(draw(st.integers(0, 110))),
        bytes_max=draw(st.sampled_from([None, 0, 300, 10_000])),
        until_ms=draw(st.sampled_from([None, NOW_MS, NOW_MS + 1])),
        vchannels=frozenset(draw(st.sets(st.sampled_from(NAMES)))),
    )


def within_limits(hold: Hold) -> bool:
    size = sum(it.size_bytes for it in SEGMENTS if it.next_id > hold.from_id)
    in_time = hold.until_ms is None or hold.until_ms > NOW_MS
    return in_time and (hold.bytes_max is None or size <= hold.bytes_max)


def needs(hold: Hold, name: str, *, dropped: bool) -> bool:
    if not hold.vchannels:
        return True
    by_name = hold.kind in (HolderKind.CURSOR, HolderKind.GROUP)
    return name in hold.vchannels and not (dropped and by_name)


@given(FLOORS, FLOORS, st.lists(holds(), max_size=5))
def test_nothing_held_is_free_and_what_nobody_holds_is(
    dropped: dict[str, MessageId], purged: dict[str, MessageId], found: list[Hold]
) -> None:
    free = not_held(Dead(dropped, purged), found, SEGMENTS, NOW_MS)
    for was, now, is_dropped in (
        (dropped, free.dead.dropped, True),
        (purged, free.dead.purged, False),
    ):
        for name in was:
            for id in range(1, 101):
                is_held = any(
                    within_limits(it) and needs(it, name, dropped=is_dropped) and id >= it.from_id
                    for it in found
                )
                assert (id < now[name]) == (id < was[name] and not is_held)


def hold(from_id: int = 0, **more: object) -> Hold:
    return Hold(HolderKind.CURSOR, "x", from_id=MessageId(from_id), **more)  # type: ignore[arg-type]


def test_who_is_beyond_a_limit_is_named_with_what_it_would_hold() -> None:
    dead = Dead(purged={"a": MessageId(50)})
    for limit in ({"bytes_max": 999}, {"until_ms": NOW_MS}):
        free = not_held(dead, [hold(5, **limit)], SEGMENTS, NOW_MS)
        assert free.dead == dead
        [beyond] = free.beyond
        assert (beyond.name, beyond.bytes) == ("x", 1000)
    assert not_held(dead, [hold(60, bytes_max=1)], SEGMENTS, NOW_MS).beyond == ()


def test_a_hold_of_everything_keeps_dropped_and_purged_and_a_cursor_nothing_of_what_is_gone() -> (
    None
):
    dead = Dead({"a": MessageId(50)}, {"b": MessageId(60)})
    everything = not_held(dead, [hold(20)], SEGMENTS, NOW_MS)
    assert everything.dead == Dead({"a": MessageId(20)}, {"b": MessageId(20)})
    names = frozenset({"a", "b"})
    by_name = not_held(dead, [hold(20, vchannels=names)], SEGMENTS, NOW_MS)
    assert by_name.dead == Dead({"a": MessageId(50)}, {"b": MessageId(20)})
    reader = Hold(HolderKind.READER, "x", from_id=MessageId(20), vchannels=names)
    assert not_held(dead, [reader], SEGMENTS, NOW_MS).dead == everything.dead
