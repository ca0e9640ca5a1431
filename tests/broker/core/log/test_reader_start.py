"""Deliver policies against what a log holds."""

import pytest

from broker.core.log.reader_start import start_position
from broker.model.channel import ChannelOffsets
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.position import (
    DeliverPolicy,
    FromAll,
    FromLatest,
    ReadPosition,
    StartAfter,
    StartFrom,
)


def offsets(first_id: int, next_id: int) -> ChannelOffsets:
    return ChannelOffsets(
        PChannelName("p"), Term(1), MessageId(first_id), MessageId(next_id), TimeTick(77), 0
    )


@pytest.mark.parametrize(
    ("policy", "first_id", "wanted"),
    [
        (FromAll(), 10, ReadPosition(MessageId(10), partial=True, oldest=True)),
        (FromLatest(), 10, ReadPosition(MessageId(20), TimeTick(77))),
        (StartFrom(MessageId(10)), 10, ReadPosition(MessageId(10), partial=True)),
        (StartFrom(MessageId(20)), 10, ReadPosition(MessageId(20))),
        (StartAfter(MessageId(9)), 10, ReadPosition(MessageId(10), partial=True)),
        (StartAfter(MessageId(19)), 10, ReadPosition(MessageId(20))),
        (StartFrom(MessageId(0)), 1, ReadPosition(MessageId(1))),
    ],
)
def test_a_policy_names_a_place_in_the_log(
    policy: DeliverPolicy, first_id: int, wanted: ReadPosition
) -> None:
    assert start_position(policy, offsets(first_id, 20)) == wanted


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (StartFrom(MessageId(9)), StreamingCode.UNRECOVERABLE),
        (StartAfter(MessageId(8)), StreamingCode.UNRECOVERABLE),
        (StartFrom(MessageId(21)), StreamingCode.INVALID_ARGUMENT),
        (StartAfter(MessageId(20)), StreamingCode.INVALID_ARGUMENT),
    ],
)
def test_a_place_outside_the_log_is_refused_with_the_range(
    policy: DeliverPolicy, code: StreamingCode
) -> None:
    refusal = start_position(policy, offsets(10, 20))
    assert isinstance(refusal, Refusal)
    assert refusal.code is code
    assert "[10, 20)" in refusal.cause
