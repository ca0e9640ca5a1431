"""An offset is a cut, and equal cuts are equal text; what is none is refused with a way out."""

import json
from dataclasses import replace

import pytest

from broker.client import Cut
from broker.client.cluster.targets import NewVChannel
from broker.model.channel import ChannelOffsets
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.spark.refusals import BadCheckpoint
from broker.spark.source.cut_offsets import (
    Offset,
    Position,
    check_subscription,
    losses,
    position_of,
    to_offset,
    to_position,
)


def cut(tick: int, **ends: int) -> Position:
    return Position(TimeTick(tick), {name: MessageId(end) for name, end in ends.items()})


def held(**ranges: tuple[int, int]) -> dict[str, ChannelOffsets]:
    return {
        name: ChannelOffsets(
            PChannelName(name), Term(1), MessageId(first), MessageId(end), TimeTick(9), 0
        )
        for name, (first, end) in ranges.items()
    }


def test_a_cut_goes_through_a_checkpoint_whatever_the_order_of_its_channels() -> None:
    one, other = to_offset(cut(7, a=1, b=2)), to_offset(cut(7, b=2, a=1))
    assert json.dumps(one) == json.dumps(other) == '{"ends": {"a": 1, "b": 2}, "tick": 7}'
    assert to_position(json.loads(json.dumps(one))) == cut(7, a=1, b=2)


@pytest.mark.parametrize(
    ("offset", "told"),
    [
        ({"flights": {NewVChannel("by-dev-rootcoord-dml_0_1v0"): 23}}, "older release"),
        ({"a": {"v": 1}, "b": {}}, "startingTick or startingTimestamp"),
        ({}, "not an offset of this source"),
        ({"tick": "7", "ends": {}}, "not an offset of this source"),
        ({"tick": 7}, "not an offset of this source"),
        ({"tick": 7, "ends": {"a": {"b": 1}}}, "not an offset of this source"),
        ({"tick": 7, "ends": {"a": 1}, "ahead": {"a": True}}, "not an offset of this source"),
        ({"tick": 7, "ends": {"a": 1}, "began": {"a": 3}}, "not an offset of this source"),
        ({"tick": 7, "ends": {"a": 1}, "began": {"a": [3, 1, 2]}}, "not an offset of this source"),
    ],
)
def test_an_offset_of_another_kind_is_refused(offset: Offset, told: str) -> None:
    with pytest.raises(BadCheckpoint, match=r"\[TIDEMARK_BAD_CHECKPOINT\]") as refused:
        to_position(offset)
    assert told in str(refused.value)


def test_a_checkpoint_of_other_vchannels_is_refused_and_both_are_named() -> None:
    check_subscription(cut(7, a=1, b=2), ["b", "a"])
    with pytest.raises(
        BadCheckpoint, match=r"only in the checkpoint: \['b'\].*only subscribed: \['c'\]"
    ):
        check_subscription(cut(7, a=1, b=2), ["a", "c"])


def test_a_range_is_lost_where_the_log_begins_later_or_ends_before_it() -> None:
    start, end = cut(5, a=10, b=10), cut(9, a=20, b=20)
    assert losses(start, end, held(a=(10, 20), b=(1, 99))) == []
    assert losses(start, end, held(a=(11, 20), b=(10, 20))) == [
        "a lost ids [10, 11), the log starts at 11"
    ]
    assert losses(start, end, held(a=(30, 40), b=(10, 20))) == [
        "a lost ids [10, 20), the log starts at 30"
    ]
    assert losses(start, end, held(a=(10, 19), b=(10, 20))) == [
        "a was read up to id 20, the log ends at 19"
    ]


def test_a_channel_that_did_not_move_has_lost_nothing() -> None:
    assert losses(cut(5, a=10), cut(9, a=10), held(a=(15, 15))) == []


def test_where_vchannels_joined_goes_through_a_checkpoint_too() -> None:
    began = {"b": (TimeTick(4), MessageId(2)), "a": (TimeTick(0), MessageId(1))}
    text = json.dumps(to_offset(replace(cut(7, a=9, b=9), began=began)))
    assert text == ('{"began": {"a": [0, 1], "b": [4, 2]}, "ends": {"a": 9, "b": 9}, "tick": 7}')
    restored = to_position(json.loads(text))
    assert restored.began == began
    assert restored.of_some(["a"]).began == {}, "only the offset with which they joined has it"


def test_vchannels_that_are_ahead_go_through_a_checkpoint_too() -> None:
    ticks = {"b": TimeTick(9), "a": TimeTick(5), "c": TimeTick(5)}
    position = position_of(ticks, {name: MessageId(1) for name in ticks})
    text = json.dumps(to_offset(position))
    assert text == '{"ahead": {"b": 9}, "ends": {"a": 1, "b": 1, "c": 1}, "tick": 5}'
    restored = to_position(json.loads(text))
    assert restored == position
    assert {name: restored.of(name) for name in ticks} == ticks
    assert restored.of("new") == 0
    assert restored.last == ["a", "c"]


def test_a_position_moves_to_a_cut_where_it_is_not_further_already() -> None:
    start = position_of(
        {"a": TimeTick(5), "b": TimeTick(9)}, {"a": MessageId(1), "b": MessageId(7)}
    )
    newest = Cut(TimeTick(8), {"a": MessageId(3), "b": MessageId(6)})
    reached = start.reached(newest)
    assert (reached.tick, reached.ahead, reached.ends) == (8, {"b": 9}, {"a": 3, "b": 7})
    assert start.of_some(["b"]) == cut(9, b=7)
    assert start.not_behind(6).ahead == {"b": 6}
