"""Where a cursor is, for each collection that it reads."""

from broker.model.ids import TimeTick
from broker.model.named_cursor import ChannelPosition, NamedCursor
from broker.timesync.cursor_places import NO_COLLECTION, CursorPlace, places_of

NAMES = {"p0_1v0": "flights", "p1_1v1": "flights", "p0_2v0": "trains"}


def at(tick: int) -> ChannelPosition:
    return ChannelPosition(TimeTick(tick))


def test_each_collection_is_where_its_slowest_channel_is() -> None:
    positions = {"p0_1v0": at(50), "p1_1v1": at(40), "p0_2v0": at(70), "p0": at(60)}
    assert places_of(NamedCursor("mine", positions, 1), NAMES) == [
        CursorPlace("mine", "flights", TimeTick(40)),
        CursorPlace("mine", "trains", TimeTick(70)),
        CursorPlace("mine", NO_COLLECTION, TimeTick(60)),
    ]


def test_a_cursor_that_has_processed_nothing_counts_from_when_it_was_made() -> None:
    (place,) = places_of(NamedCursor("new", {"p0_2v0": at(0)}, 9000), NAMES)
    assert place == CursorPlace("new", "trains", TimeTick(9000 << 18))
