"""Lists of ids within headers that are otherwise not read, against betterproto2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.fields import field
from schemas.encoding.id_list import IDS_BYTES_MAX, read_ids, with_ids
from schemas.encoding.varint import Malformed, varint
from schemas.generated.milvus.proto import messages as generated
from tests.schemas import messages

lists = st.lists(messages.int64s, max_size=4)


@given(messages.int64s, lists, lists, st.lists(messages.unknown_fields(), max_size=2))
def test_ids_are_replaced_and_all_else_is_kept(
    collection: int, before: list[int], after: list[int], unknown: list[bytes]
) -> None:
    header = generated.ManualFlushMessageHeader(
        collection_id=collection, flush_ts=7, segment_ids=before
    )
    raw = bytes(header) + b"".join(unknown)
    assert read_ids(raw, 3) == tuple(before)
    changed = with_ids(raw, 3, tuple(after))
    parsed = generated.ManualFlushMessageHeader.parse(changed)
    assert (parsed.collection_id, parsed.flush_ts) == (collection, 7)
    assert parsed.segment_ids == after
    kept = messages.contents(changed)
    assert all(each in kept for each in messages.contents(b"".join(unknown)))


@given(lists)
def test_ids_may_come_one_by_one(ids: list[int]) -> None:
    assert read_ids(b"".join([b"\x18" + varint(each) for each in ids]), 3) == tuple(ids)


def test_a_damaged_list_is_malformed() -> None:
    for damaged in (b"\x1a\x05", b"\x1a\x01\x80", b"\x18"):
        with pytest.raises(Malformed):
            read_ids(damaged, 3)


@pytest.mark.parametrize(
    "header", [field(0x12, b"\x01" * (IDS_BYTES_MAX + 1)), b"\x10\x01" * 40_000]
)
def test_very_many_ids_are_malformed(header: bytes) -> None:
    with pytest.raises(Malformed):
        read_ids(header, 2)
