"""What logs hold by what was counted and was told: never less than told while a log is read."""

from collections.abc import ItemsView

from broker.core.space.figures_here import figures_here
from broker.core.space.log_sizes import LogSizes, stored_bytes
from broker.model.ids import MessageId, PChannelName
from broker.model.retention.dead import VChannelPart
from tests.broker.core.space.test_log_sizes import Segment, V, counting, record

MINE = PChannelName("p")
SIZE = stored_bytes(record(1))
OLD = Segment(MessageId(5), 10)


def of_one(told: dict[str, int], sizes: LogSizes) -> dict[str, int]:
    return figures_here(told, {MINE: sizes})


def test_what_was_told_counts_until_the_log_is_read_unless_more_is_counted() -> None:
    told = {V[0]: 1, V[1]: 5000, "q_1v0": 7}
    sizes = counting(record(5), record(6, V[2]), begun=5)
    sizes.look([OLD], MessageId(1))
    assert of_one(told, sizes) == {V[0]: SIZE, V[1]: 5000, V[2]: SIZE}
    sizes.read(OLD, MessageId(1), {})
    assert of_one(told, sizes) == {V[0]: SIZE, V[1]: 0, V[2]: SIZE}


def test_a_log_that_is_not_counted_yet_has_what_was_told() -> None:
    assert of_one({V[0]: 5, "q_1v0": 7}, LogSizes()) == {V[0]: 5}


def test_a_purge_lowers_the_figure_also_while_segments_are_left_out() -> None:
    sizes, second = counting(begun=9, parts_max=2), Segment(MessageId(9), 10)
    segments = [OLD, second]
    sizes.look(segments, MessageId(1))
    part = VChannelPart(100, MessageId(1), MessageId(5))
    sizes.read(OLD, MessageId(1), dict.fromkeys(V[:2], part))
    sizes.look(segments, MessageId(1))
    assert sizes.left_out == 1
    told = of_one({}, sizes)
    assert told == {V[0]: 100, V[1]: 100}
    sizes.purged(V[0], MessageId(5))
    assert of_one(told, sizes) == {V[0]: 0, V[1]: 100}


class Told(dict[str, int]):
    """Counts how often it was gone through."""

    times = 0

    def items(self) -> ItemsView[str, int]:  # type: ignore[override]
        self.times += 1
        return super().items()


def test_what_was_told_is_gone_through_once_for_all_logs() -> None:
    told = Told({V[0]: 5, "p9_1v0": 6, "p50_1v0": 7})
    logs = {PChannelName(f"p{it}"): LogSizes() for it in range(20)}
    assert figures_here(told, logs) == {"p9_1v0": 6}
    assert told.times == 1
