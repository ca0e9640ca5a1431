"""Where a new consumer starts: its deliver policy applied to what the log holds.

A position that retention removed is refused with the range that is left, never skipped silently.
"""

from typing import assert_never

from broker.model.channel import ChannelOffsets
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import FIRST_MESSAGE_ID, MessageId
from broker.model.position import (
    DeliverPolicy,
    FromAll,
    FromLatest,
    ReadPosition,
    StartAfter,
    StartFrom,
)


def start_position(policy: DeliverPolicy, offsets: ChannelOffsets) -> ReadPosition | Refusal:
    """The position of the first read; UNRECOVERABLE below the range, INVALID_ARGUMENT above it."""
    match policy:
        case FromAll():
            # Partial: transactions of which retention removed a part are skipped, not refused,
            # because this consumer asks for whatever is left.
            return ReadPosition(offsets.first_id, partial=True, oldest=True)
        case FromLatest():
            return ReadPosition(offsets.next_id, offsets.closed_tick)
        case StartFrom(wanted):
            return _within(wanted, offsets)
        case StartAfter(last):
            return _within(MessageId(last + 1), offsets)
        case _:
            assert_never(policy)


def _within(wanted: MessageId, offsets: ChannelOffsets) -> ReadPosition | Refusal:
    range_text = f"{offsets.name} holds [{offsets.first_id}, {offsets.next_id})"
    if wanted > offsets.next_id:
        cause = f"message id {wanted} is not written yet: {range_text}"
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
    if wanted >= offsets.first_id:
        # The first id that is left is where FromAll starts, and is treated alike.
        return ReadPosition(wanted, partial=wanted == offsets.first_id)
    if offsets.first_id == FIRST_MESSAGE_ID:  # nothing was ever removed
        return ReadPosition(FIRST_MESSAGE_ID)
    cause = f"message id {wanted} was removed by retention: {range_text}"
    return Refusal(StreamingCode.UNRECOVERABLE, cause)
