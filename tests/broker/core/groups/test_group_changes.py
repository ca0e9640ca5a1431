"""The stored form of changes of groups."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.core.groups.group_changes import (
    AckedInTxn,
    GroupAltered,
    GroupChange,
    GroupCreated,
    GroupDropped,
    GroupSought,
    MessagesAcked,
    MessagesDying,
    MessagesTried,
    UnreadableChange,
    decode_change,
    encode_change,
)
from broker.model.groups.consumer_group import TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick, TxnId
from tests.broker.core.groups.made_changes import LIMIT


@pytest.mark.parametrize(
    "change",
    [
        GroupCreated("g", 30_000, TimeTick(0)),
        GroupCreated("g", 30_000, None),
        MessagesAcked(
            "g", (TickSpan(TimeTick(1), TimeTick(2)), TickSpan(TimeTick(5), TimeTick(9)))
        ),
        AckedInTxn("g", TxnId(1 << 60), (TickSpan(TimeTick(1), TimeTick(2)),), 3),
        GroupCreated("g", 30_000, None, LIMIT),
        GroupCreated("g", 30_000, None, LIMIT, GroupMode.BY_KEY),
        GroupCreated("g", 30_000, TimeTick(7), mode=GroupMode.BY_VCHANNEL),
        GroupAltered("g", 1000, LIMIT),
        GroupAltered("g", 1000, None),
        MessagesTried("g", (TickSpan(TimeTick(1), TimeTick(2)),), 2),
        MessagesDying("g", (TickSpan(TimeTick(1), TimeTick(2)),), "bad seat", 3),
        GroupSought("g", TimeTick(7)),
        GroupSought("g", None),
        GroupDropped("g"),
    ],
)
def test_a_change_comes_back_as_it_was(change: GroupChange) -> None:
    assert decode_change(encode_change(change)) == change


SPANS = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=3)


@given(st.text(), SPANS)
@example("g", [(1, 2)])
@example('say "g"', [(0, 2)])
@example("back\\slash", [(1, 2)])
@example("línea", [(1, 2)])
def test_acknowledgements_are_stored_as_the_json_module_would_write_them(
    name: str, pairs: list[tuple[int, int]]
) -> None:
    acked = MessagesAcked(name, tuple([TickSpan(TimeTick(a), TimeTick(b)) for a, b in pairs]))
    fields = {"group": name, "change": "acked", "spans": pairs}
    body = encode_change(acked)
    assert body == json.dumps(fields, separators=(",", ":")).encode()
    assert decode_change(body) == decode_change(json.dumps(fields).encode()) == acked


def test_a_release_without_ordered_groups_does_not_take_one_for_a_shared_group() -> None:
    body = encode_change(GroupCreated("g", 30_000, None, mode=GroupMode.BY_KEY))
    assert b'"change":"created in order"' in body


def test_a_change_is_text_that_a_person_can_read() -> None:
    body = encode_change(MessagesAcked("g", (TickSpan(TimeTick(1), TimeTick(2)),)))
    assert body == b'{"group":"g","change":"acked","spans":[[1,2]]}'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xff", "damaged"),
        (b"[]", "damaged"),
        (b"{}", "damaged"),
        (b"[" * 5000, "damaged"),
        (b'{"group":"g","change":"sought","floor":1e999}', "damaged"),
        (b'{"group":"g","change":"acked","spans":[[1]]}', "damaged"),
        (b'{"group":"g","change":"acked in txn","spans":[[1,2]]}', "damaged"),
        (b'{"group":"g","change":"created in order","by":"x","lease_ms":1}', "damaged"),
        (b'{"group":"g","change":"paused"}', "'paused' is not known"),
    ],
)
def test_what_cannot_be_read_is_told_apart(body: bytes, words: str) -> None:
    with pytest.raises(UnreadableChange, match=words):
        decode_change(body)
