"""Batches taken apart into single messages, whatever an earlier release has stored."""

import pytest

from broker.codec.stored_messages import stored_of
from broker.model.batch import BatchPart
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import MessageType
from broker.model.record import Record, RecordSlice
from schemas.batches import shared_properties
from schemas.scan import stored_properties


@pytest.mark.parametrize("kind", [MessageType.INSERT, MessageType.DELETE])
def test_a_header_that_is_none_is_delivered_as_it_is_and_stops_no_reader(kind: MessageType) -> None:
    """The edge refuses such a batch now; one that lies in a log has to be passed."""
    shared = {"_t": "2", "_v": "1", "_h": "CgU="}
    record = Record(
        Term(1),
        MessageId(5),
        TimeTick(50),
        MessageId(5),
        kind,
        "p_1v0",
        (1, 2),
        b"abc",
        batch=BatchPart(shared_properties(shared.items())),
    )
    found = stored_of(RecordSlice(record, 0, 2))
    assert [stored_properties(it) for it in found] == [shared, shared]
