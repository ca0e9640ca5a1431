"""How many fields of a message are read, however they are hidden in it."""

from itertools import pairwise

import pytest
from betterproto2 import Message

from schemas.encoding.fields import field
from schemas.field_budget import LARGEST, MESSAGE_FIELDS, STEP, FieldBudget, TooManyFields
from schemas.generated.milvus.proto import messages
from schemas.generated.tidemark import v1
from schemas.message_bytes import parsed, parsed_bounded

MANY = 1000
HIDDEN: dict[str, tuple[type[Message], bytes]] = {
    "unknown fields": (v1.DescribeRequest, b"\x78\x01" * MANY),
    "fields of a group": (v1.DescribeRequest, b"\x0b" + b"\x78\x01" * (MANY - 1) + b"\x0c"),
    "texts": (v1.DescribeRequest, b"\x0a\x00" * MANY),
    "messages": (v1.CommitCursorRequest, b"\x1a\x00" * (MANY // MESSAGE_FIELDS)),
    "fields of messages": (v1.CommitCursorRequest, field(0x1A, b"\x78\x01" * MANY)),
    "packed numbers": (v1.AcknowledgeFlushesRequest, field(0x12, b"\x01" * MANY)),
    "packed numbers of a fixed width": (v1.AppendRequest, field(0x12, b"\x01\0\0\0" * MANY)),
    "entries of a map": (messages.Message, b"\x12\x00" * (MANY // MESSAGE_FIELDS)),
    "parts of one message": (v1.CreateIndexRequest, field(0x0A, b"") * MANY),
}


@pytest.mark.parametrize("hidden", HIDDEN)
def test_no_more_fields_are_read_than_the_budget_has(hidden: str) -> None:
    kind, data = HIDDEN[hidden]
    with pytest.raises(TooManyFields, match=f"more than {MANY - 1} fields"):
        parsed(kind, data, FieldBudget(MANY - 1))
    enough = FieldBudget(2 * MANY)
    assert parsed(kind, data, enough) == parsed(kind, data)
    assert MANY <= enough.taken <= 2 * MANY


def test_what_strangers_send_has_a_budget_and_what_we_made_has_none() -> None:
    data = b"\x78\x01" * (LARGEST + 1)
    with pytest.raises(TooManyFields):
        parsed_bounded(v1.DescribeRequest, data)
    assert parsed(v1.DescribeRequest, data)._unknown_fields == data


def test_a_reader_pauses_once_a_step() -> None:
    pauses: list[int] = []
    budget = FieldBudget(LARGEST, lambda: pauses.append(budget.taken))
    parsed(v1.DescribeRequest, b"\x0a\x00" * (10 * STEP), budget)
    assert len(pauses) == 10
    assert all(later - earlier >= STEP for earlier, later in pairwise(pauses))
