"""Headers of batches: written for all messages, shared out among single ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.batches import shared_properties
from schemas.encoding.base64_text import base64_text, read_base64
from schemas.encoding.varint import Malformed
from schemas.generated.milvus.proto import common
from schemas.generated.milvus.proto import messages as generated
from schemas.properties.batch_header import (
    delete_shares,
    insert_header,
    insert_shares,
    joined,
    partition_property,
    split_header,
    with_deletes,
)
from schemas.properties.insert_header import with_rows
from tests.schemas import messages

OTHERS = {"_t": "2", "_v": "1", "_vc": "p_0_7v0", "tidemark.schema": "3", "mine": "x" * 300}


def stamped(messages: int, size_bytes: int, segment: int = 9) -> bytes:
    header = insert_header(7, 8, segment, messages, size_bytes)
    return joined(shared_properties(OTHERS.items()), header)


def read(properties: bytes) -> tuple[dict[str, str], generated.InsertMessageHeader]:
    found = common.ImmutableMessage.parse(properties).properties
    text = found.pop("_h")
    return found, generated.InsertMessageHeader.parse(read_base64(text))


@given(messages.ids, messages.ids)
def test_a_partition_is_named_by_a_header_without_counts(collection: int, partition: int) -> None:
    others, header = read(partition_property(collection, partition))
    assert others == {}
    (part,) = header.partitions
    assert (header.collection_id, part.partition_id, part.rows) == (collection, partition, 0)
    assert part.segment_assignment is None


@settings(deadline=None)
@given(st.integers(1, 40), messages.ticks, st.integers(1, (1 << 63) - 1))
def test_the_headers_of_single_messages_add_up_to_that_of_the_batch(
    count: int, size_bytes: int, segment: int
) -> None:
    shares = insert_shares(stamped(count, size_bytes, segment), count)
    parts = []
    for index in range(count):
        others, header = read(shares.of(index))
        assert others == OTHERS
        (part,) = header.partitions
        assert (header.collection_id, part.partition_id, part.rows) == (7, 8, 1)
        assert part.segment_assignment is not None
        assert part.segment_assignment.segment_id == segment
        parts.append(part.binary_size)
    assert sum(parts) == size_bytes
    assert max(parts) - min(parts) <= 1


@given(st.dictionaries(st.text(), st.text()), st.binary(max_size=300))
def test_a_header_is_split_from_the_other_properties_and_joined_again(
    properties: dict[str, str], header: bytes
) -> None:
    properties.pop("_h", None)
    others = shared_properties(properties.items())
    whole = shared_properties([("_h", base64_text(header))]) + others
    assert split_header(whole) == (others, header)
    assert split_header(joined(others, header)) == (others, header)
    found = common.ImmutableMessage.parse(joined(others, header)).properties
    assert found == properties | {"_h": base64_text(header)}


def test_a_header_that_the_log_did_not_write_stays_as_it_is() -> None:
    for header in (
        b"",
        bytes(generated.InsertMessageHeader(collection_id=7)),
        insert_header(7, 8, 0, 2, 40),  # no segment
        insert_header(7, 8, 9, 3, 40),  # of another number of rows
    ):
        sent = joined(b"", header)
        assert insert_shares(sent, 2).of(0) == insert_shares(sent, 2).of(1) == sent
    for header in (b"", b"\x08\x07", b"\x10\x02", b"\x08\x07\x10\x03"):
        sent = joined(b"", header)
        assert delete_shares(sent, 2).of(0) == sent


def test_a_delete_of_many_is_delivered_as_deletes_of_one() -> None:
    unknown = b"\x52\x01z"
    batch = with_deletes(b"\x08\x01\x10\x63" + unknown, 7, 5)
    assert batch == b"\x08\x07\x10\x05" + unknown
    (others, header) = split_header(delete_shares(joined(b"", batch), 5).of(4))
    assert (others, header) == (b"", b"\x08\x07\x10\x01" + unknown)


def test_what_the_producer_says_beyond_the_counts_is_kept() -> None:
    sent = generated.InsertMessageHeader(
        collection_id=7,
        partitions=[generated.PartitionSegmentAssignment(partition_id=8, rows=99, binary_size=1)],
        schema_version=4,
    )
    header = generated.InsertMessageHeader.parse(with_rows(bytes(sent) + b"\x52\x01z", 2, 40, 9))
    assert (header.collection_id, header.schema_version) == (7, 4)
    (part,) = header.partitions
    assert (part.partition_id, part.rows, part.binary_size) == (8, 2, 40)
    assert b"\x52\x01z" in with_rows(bytes(sent) + b"\x52\x01z", 2, 40, 9)


def test_damaged_properties_are_malformed() -> None:
    for damaged in (b"\x1a\x05", shared_properties([("_h", "no base64!")])):
        with pytest.raises(Malformed):
            split_header(damaged)
