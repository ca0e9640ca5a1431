"""Offsets never go back, never starve a shard, and say what was lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.spark import offsets
from broker.spark.offsets import DataLoss, Held, Span
from broker.spark.options import EARLIEST, LATEST, BadOption

NAMES = {"b": ["p_2v0"], "a": ["p_1v1", "p_0v0"]}
HELD = {"p_0v0": Held(1, 11), "p_1v1": Held(5, 21), "p_2v0": Held(1, 1)}

shards = st.dictionaries(
    st.sampled_from(["p_0v0", "p_1v1", "p_2v0"]), st.integers(1, 10_000), min_size=1
)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[offsets.Offset, offsets.Offset]:
    start = {"a": draw(shards)}
    end = {"a": {name: at + draw(st.integers(0, 5_000)) for name, at in start["a"].items()}}
    return offsets.ordered(start), offsets.ordered(end)


def test_equal_offsets_are_equal_text_whatever_order_they_were_built_in() -> None:
    one = offsets.ordered({"b": {"y": 1, "x": 2}, "a": {"z": 3}})
    other = offsets.ordered({"a": {"z": 3}, "b": {"x": 2, "y": 1}})
    assert json.dumps(one) == json.dumps(other)


def test_words_and_ids_resolve_to_ids() -> None:
    assert offsets.resolve("o", EARLIEST, NAMES, HELD)["a"] == {"p_0v0": 1, "p_1v1": 5}
    assert offsets.resolve("o", LATEST, NAMES, HELD)["a"] == {"p_0v0": 11, "p_1v1": 21}
    mixed = offsets.resolve("o", {"a": {"0": 7, "p_0v0": LATEST}}, NAMES, HELD)
    assert mixed == {"a": {"p_0v0": 11, "p_1v1": 7}, "b": {"p_2v0": 1}}


@pytest.mark.parametrize("bound", [{"c": {"0": 1}}, {"a": {"2": 1}}, {"a": {"p_9v9": 1}}])
def test_a_bound_for_something_not_subscribed_to_is_refused(
    bound: dict[str, dict[str, int]],
) -> None:
    with pytest.raises(BadOption):
        offsets.resolve("startingOffsets", bound, NAMES, HELD)


@given(ranges(), st.integers(1, 20_000))
def test_a_share_moves_every_lagging_shard_and_stays_near_the_budget(
    span: tuple[offsets.Offset, offsets.Offset], budget: int
) -> None:
    start, target = span
    end = offsets.share(start, target, budget)
    moved = 0
    for vchannel, position in start["a"].items():
        step = end["a"][vchannel] - position
        lag = target["a"][vchannel] - position
        assert 0 <= step <= lag
        assert step > 0 or lag == 0
        moved += step
    # A shard whose share rounds to nothing still moves by one: all but the largest lag can be such.
    assert moved <= budget + len(start["a"]) - 1


@given(ranges(), st.integers(1, 500))
def test_repeated_shares_reach_the_target(
    span: tuple[offsets.Offset, offsets.Offset], budget: int
) -> None:
    position, target = span
    for _ in range(20_000):
        if position == target:
            break
        position = offsets.share(position, target, budget)
    assert position == target


@given(ranges())
def test_a_query_does_not_go_back(span: tuple[offsets.Offset, offsets.Offset]) -> None:
    start, end = span
    assert offsets.advance_to(end, start) == end
    assert offsets.advance_to(start, end) == end


def test_spans_are_what_lies_between() -> None:
    start = {"a": {"p_0v0": 1, "p_1v1": 5}}
    end = {"a": {"p_0v0": 1, "p_1v1": 9}, "b": {"p_2v0": 4}}
    assert offsets.spans(start, end) == [Span("a", "p_1v1", 5, 9), Span("b", "p_2v0", 1, 4)]
    assert offsets.spans(end, start) == []


@pytest.mark.parametrize(
    ("start", "end", "held", "told"),
    [
        ({"v": 1}, {"v": 9}, {}, "does not exist any more"),
        ({"v": 9}, {"v": 4}, {"v": Held(1, 20)}, "below the 9 already read"),
        ({"v": 1}, {"v": 9}, {"v": Held(1, 5)}, "the log ends at 5"),
        ({"v": 1}, {"v": 9}, {"v": Held(4, 20)}, "lost [1, 4)"),
    ],
)
def test_a_loss_is_told_with_its_range(
    start: dict[str, int], end: dict[str, int], held: dict[str, Held], told: str
) -> None:
    lost = offsets.losses({"a": start}, {"a": end}, held)
    assert len(lost) == 1
    assert told in lost[0]
    assert "failOnDataLoss" in str(DataLoss(lost))


def test_nothing_is_lost_when_the_log_holds_the_range_or_the_range_is_empty() -> None:
    assert offsets.losses({"a": {"v": 3}}, {"a": {"v": 9}}, {"v": Held(1, 9)}) == []
    assert offsets.losses({"a": {"v": 3}}, {"a": {"v": 3}}, {"v": Held(7, 9)}) == []
