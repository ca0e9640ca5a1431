"""Keys and their slots are the same everywhere, and spread."""

from broker.core.groups.key_lanes import SLOTS, lanes_of, slot_of


def test_a_tick_is_in_the_lane_of_each_of_its_keys_once() -> None:
    (one,) = lanes_of([b"IC 5"])
    assert lanes_of([b"IC 5", None, b"IC 5"]) == (one,)
    assert len(lanes_of([b"IC 5", b"IC 6"])) == 2
    assert lanes_of([None]) == ()
    assert lanes_of([b""]) != ()


def test_keys_spread_over_all_slots() -> None:
    slots = [slot_of(lanes_of([b"key %d" % it])[0]) for it in range(100 * SLOTS)]
    counts = [slots.count(it) for it in range(SLOTS)]
    assert min(counts) > 50
    assert max(counts) < 200
