"""The first copy of a broadcast counts, within a bound."""

from broker.core.log.seen_broadcasts import SeenBroadcasts
from broker.model.ids import BroadcastId

ONE, TWO = BroadcastId(1), BroadcastId(2)


def test_the_first_copy_on_a_vchannel_counts_and_no_other() -> None:
    seen = SeenBroadcasts()
    assert seen.is_first("a", ONE, 10)
    assert not seen.is_first("a", ONE, 12)
    assert seen.is_first("b", ONE, 12)
    assert seen.is_first("a", TWO, 13)
    assert seen.is_first("a", ONE, 10), "the same copy, read once more"


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first() -> None:
    seen = SeenBroadcasts(remembered_max=2)
    for number in (1, 2, 3):
        assert seen.is_first("a", BroadcastId(number), number)
    assert not seen.is_first("a", BroadcastId(3), 9)
    assert seen.is_first("a", ONE, 9)
