"""Which messages of a group share a record."""

from hypothesis import given

from broker.core.log.sequencer import sequence
from broker.model.message import Appended, NewMessage
from tests.broker.core.log.test_sequencer import (
    ADMISSION,
    END,
    FIRST_TICK,
    MESSAGES,
    VCHANNELS,
    known,
    new_message,
)  # fmt: skip


@given(MESSAGES)
def test_a_record_holds_one_vchannel_and_one_type_within_its_limits(
    messages: list[NewMessage],
) -> None:
    for record in sequence(messages, FIRST_TICK, END, ADMISSION, known()).records:
        assert len(record.sizes) <= ADMISSION.record_messages_max
        assert len(record.body) <= ADMISSION.record_bytes_max or len(record.sizes) == 1


def test_neighbours_of_one_vchannel_and_type_share_a_record() -> None:
    messages = [new_message(), new_message(vchannel=VCHANNELS[2]), new_message()]
    result = sequence(messages, FIRST_TICK, END, ADMISSION, known())
    assert [len(record.sizes) for record in result.records] == [2, 1]
    assert [outcome.id for outcome in result.outcomes if isinstance(outcome, Appended)] == [
        50, 52, 51,
    ]  # fmt: skip
