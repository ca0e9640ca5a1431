"""Of a log with too many vchannels in segments some are left out, and the others count on."""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.space.log_sizes import LogSizes
from broker.model.ids import MessageId
from broker.model.retention.dead import VChannelPart
from tests.broker.core.space.test_log_sizes import (
    Counted,
    Segment,
    V,
    act,
    actions,
    counting,
    record,
)
from tests.cases import cases

PART = VChannelPart(10, MessageId(1), MessageId(5))


def test_with_too_many_parts_no_further_segment_is_read_and_that_is_told() -> None:
    first, second = Segment(MessageId(5), 10), Segment(MessageId(9), 10)
    sizes = counting(begun=9, parts_max=2)
    sizes.look([first, second], MessageId(1))
    sizes.read(first, MessageId(1), dict.fromkeys(V[:2], PART))
    sizes.look([first, second], MessageId(1))
    assert (sizes.unread, sizes.left_out, sizes.complete) == ([], 1, True)
    assert sizes.warning("dml_0").startswith("dml_0: 1 segments are not counted")
    again = Segment(MessageId(5), 7)
    sizes.look([again, second], MessageId(1))
    assert sizes.unread == [again], "one that was written anew has less"
    sizes.read(again, MessageId(1), {V[0]: PART})
    sizes.look([again, second], MessageId(1))
    assert (sizes.unread, sizes.left_out) == ([second], 0)
    assert sizes.warning("dml_0") == ""


def sealed(sizes: LogSizes, base_id: int, count: int) -> Segment:
    """A segment of so many vchannels that was appended and is sealed."""
    sizes.stored([record(base_id + it, f"p_{it}v0") for it in range(count)])
    return Segment(MessageId(base_id + count), 10)


def test_of_what_is_counted_the_oldest_is_left_out_when_it_has_twice_too_many_parts() -> None:
    sizes = counting(parts_max=4)
    segments, seen = list[Segment](), list[tuple[int, int]]()
    for number in range(6):
        segments.append(sealed(sizes, 1 + 3 * number, 3))
        sizes.look([*segments], MessageId(1))
        assert (sizes.unread, sizes.complete) == ([], True)
        seen.append((sizes.left_out, sizes.bytes_of("p_0v0")))
    one = seen[0][1]
    assert seen == [(0, one), (0, 2 * one), (1, 2 * one), (2, 2 * one), (3, 2 * one), (4, 2 * one)]
    assert sizes.warning("dml_0").startswith("dml_0: 4 segments are not counted")
    sizes.look(segments[3:], segments[2].next_id)
    assert (sizes.unread, sizes.left_out) == ([], 1)


def test_a_segment_that_is_written_anew_and_left_out_is_not_read() -> None:
    sizes = counting(parts_max=2)
    segments = [sealed(sizes, 1, 2), sealed(sizes, 3, 2)]
    sizes.look(segments, MessageId(1))
    segments = [Segment(MessageId(3), 7), segments[1], sealed(sizes, 5, 2)]
    sizes.look(segments, MessageId(1))
    assert (sizes.unread, sizes.left_out) == ([], 1)


def test_a_segment_without_which_there_would_be_room_for_it_stays() -> None:
    sizes = counting(parts_max=2)
    segments, seen = list[Segment](), list[int]()
    for base_id, count in ((1, 5), (6, 1), (7, 1)):
        segments.append(sealed(sizes, base_id, count))
        sizes.look([*segments], MessageId(1))
        assert sizes.unread == []
        seen.append(sizes.left_out)
    assert seen == [0, 0, 1], "at last the others are as many as may be"


def test_what_grows_leaves_no_segment_out() -> None:
    sizes, old = counting(begun=5, parts_max=2), Segment(MessageId(5), 10)
    sizes.stored([record(5 + it, f"p_{it}v0") for it in range(9)])
    sizes.look([old], MessageId(1))
    assert (sizes.left_out, sizes.unread) == (0, [old])


@settings(max_examples=cases(200))
@given(st.lists(actions, max_size=60), st.integers(1, 4))
def test_whatever_happens_a_crowded_log_stays_in_its_bounds(
    actions: list[tuple],  # type: ignore[type-arg]
    parts_max: int,
) -> None:
    at = Counted(LogSizes(parts_max))
    for action in actions:
        act(at, action)
    at.settle()
    kept = at.sizes._at
    assert kept is not None
    assert at.sizes.complete
    parts = [len(it.bytes) for _, it in sorted(kept.sealed.items())]
    assert sum(parts) <= 2 * parts_max or sum(parts[1:]) < parts_max
    ends = {it.next_id for it in at.log.segments()}
    assert at.sizes.left_out == len(ends - {*kept.sealed})
    for vchannel in V:
        counted = sum(it.bytes.get(vchannel, 0) for it in kept.stretches())
        assert at.sizes.bytes_of(vchannel) == counted >= 0
