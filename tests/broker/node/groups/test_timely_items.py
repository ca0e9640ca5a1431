"""What of a record a group gets now."""

from dataclasses import replace

import pytest

from broker.codec.stored_headers import StoredHeaders
from broker.core.groups.due_times import due_tick
from broker.model.batch import BatchPart
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import RELEASED, MessageType
from broker.model.record import Record, RecordSlice
from broker.node.groups.timely_items import TimelyItems
from schemas.batches import shared_properties

BASE_MS = 1_000_000


def record(kind: int, bodies: list[bytes], properties: bytes | None = None) -> Record:
    part = None if properties is None else BatchPart(properties)
    sizes = tuple(map(len, bodies))
    where = (Term(1), MessageId(1), due_tick(BASE_MS), MessageId(1))
    return Record(*where, kind, "v", sizes, b"".join(bodies), None, part)


def timely(closed_ms: int) -> TimelyItems:
    return TimelyItems(StoredHeaders(), lambda: due_tick(closed_ms))


@pytest.mark.parametrize(
    ("entries", "closed_ms", "expired", "comes"),
    [
        ([("_deliver_ttl", "10")], BASE_MS + 9, 0, True),
        ([("_deliver_ttl", "10")], BASE_MS + 10, 2, False),
        ([("_deliver_at", str(BASE_MS))], BASE_MS, 0, True),
        ([("_deliver_at", str(BASE_MS + 1))], BASE_MS + 9, 0, False),
        ([("mine", "_deliver_at")], BASE_MS, 0, True),
        ([("_deliver_at", "never")], BASE_MS, 0, True),
    ],
)
def test_a_batch_comes_unless_it_is_due_later_or_too_old(
    entries: list[tuple[str, str]], closed_ms: int, expired: int, comes: bool
) -> None:
    found = timely(closed_ms)
    whole = RecordSlice(record(MessageType.INSERT, [b"a", b"b"], shared_properties(entries)), 0, 2)
    assert tuple(found.parts(whole)) == ((whole,) if comes else ())
    assert found.expired == expired
    assert found.passed(0.0) == 0, "too soon after it began"
    assert found.passed(5.0) == (0 if comes else whole.last_tick)
    assert found.passed(9.0) == 0, "it was settled"


@pytest.mark.parametrize("at_ms", [BASE_MS, BASE_MS + 1])
def test_a_batch_that_lies_across_its_due_time_comes_whole_or_not_at_all(at_ms: int) -> None:
    properties = shared_properties([("_deliver_at", str(at_ms))])
    # The last tick of the millisecond, and two of the next one.
    start = TimeTick(due_tick(BASE_MS + 1) - 1)
    batch = replace(record(MessageType.INSERT, [b"a", b"b", b"c"], properties), base_tick=start)
    found = timely(BASE_MS + 9)
    for first in range(3):
        part = RecordSlice(batch, first, 3)
        assert tuple(found.parts(part)) == (() if at_ms > BASE_MS else (part,))


def test_single_messages_have_no_times() -> None:
    plain = RecordSlice(record(MessageType.INSERT, [b"_deliver_at"]), 0, 1)
    assert timely(BASE_MS * 2).parts(plain) == (plain,)


def test_of_released_messages_only_those_that_are_too_old_are_left_out() -> None:
    lasting, short = b"", shared_properties([("_deliver_ttl", "5")])
    made = record(RELEASED, [short, lasting, lasting, short, lasting, short])
    found = timely(BASE_MS + 6)
    parts = found.parts(RecordSlice(made, 0, 5))
    assert [(it.first, it.end) for it in parts] == [(1, 3), (4, 5)]
    assert found.expired == 2
    assert found.passed(5.0) == TimeTick(made.base_tick + 3)
