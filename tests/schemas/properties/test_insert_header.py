"""The header of an insert, against betterproto2 and the golden vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.base64_text import read_base64
from schemas.encoding.varint import Malformed, varint
from schemas.generated.milvus.proto import messages as generated
from schemas.properties import insert_header
from schemas.properties.insert_header import PartitionRows, assigned, read_insert_header
from tests.schemas import messages

partitions = st.builds(
    lambda partition, rows, size, segment: generated.PartitionSegmentAssignment(
        partition_id=partition,
        rows=rows,
        binary_size=size,
        segment_assignment=generated.SegmentAssignment(segment_id=segment) if segment else None,
    ),
    messages.int64s,
    messages.ticks,
    messages.ticks,
    messages.int64s,
)
headers = st.builds(
    generated.InsertMessageHeader,
    collection_id=messages.int64s,
    partitions=st.lists(partitions, max_size=3),
    schema_version=st.integers(-(2**31), 2**31 - 1),
)


@given(headers)
def test_a_header_says_what_betterproto_wrote(header: generated.InsertMessageHeader) -> None:
    read = read_insert_header(bytes(header))
    assert read.collection_id == header.collection_id
    assert (read.schema_version or 0) == header.schema_version
    assert [part.partition_id for part in read.partitions] == [
        part.partition_id for part in header.partitions
    ]
    for part, expected in zip(read.partitions, header.partitions, strict=True):
        assert (part.rows, part.size_bytes) == (expected.rows, expected.binary_size)
        segment = expected.segment_assignment
        assert part.segment_id == (segment.segment_id if segment else 0)


@given(headers, messages.ids, messages.ticks, st.lists(messages.unknown_fields(), max_size=2))
def test_a_segment_is_all_that_an_assignment_changes(
    header: generated.InsertMessageHeader, segment: int, size: int, unknown: list[bytes]
) -> None:
    before = bytes(header) + b"".join(unknown)
    after = assigned(before, segment, size)
    for part in header.partitions:
        part.segment_assignment = generated.SegmentAssignment(segment_id=segment)
        part.binary_size = part.binary_size or size
    parsed = generated.InsertMessageHeader.parse(after)
    assert (parsed.collection_id, parsed.schema_version) == (
        header.collection_id,
        header.schema_version,
    )
    for ours, expected in zip(parsed.partitions, header.partitions, strict=True):
        assert (ours.partition_id, ours.rows) == (expected.partition_id, expected.rows)
        assert ours.binary_size == expected.binary_size
        assert ours.segment_assignment is not None
        assert ours.segment_assignment.segment_id == segment
    kept = messages.contents(after)
    assert all(each in kept for each in messages.contents(b"".join(unknown)))


def test_the_golden_header_is_what_an_assignment_gives() -> None:
    sent = read_base64("CAESBggCEAMYBA==")
    assert assigned(sent, 5, 99) == read_base64("CAESCggCEAMYBCICCAU=")
    assert read_insert_header(read_base64("CGQSBAgBEAE=")).partitions == (
        PartitionRows(partition_id=1, rows=1, size_bytes=0, segment_id=0),
    )


def test_a_version_that_is_not_said_is_not_zero() -> None:
    assert read_insert_header(b"").schema_version is None
    assert read_insert_header(b"\x18" + varint(0)).schema_version == 0


def test_a_damaged_header_is_malformed() -> None:
    for damaged in (b"\x08", b"\x12\x05", b"\x12\x02\x22\x05", b"\x12\x03\x22\x01\x08"):
        with pytest.raises(Malformed):
            read_insert_header(damaged)


def test_long_headers_are_read_and_not_remembered() -> None:
    header = b"\x08\x05" + b"\x12\x00" * 5_000
    before = insert_header._remembered.cache_info(), insert_header._assigned_before.cache_info()
    assert len(read_insert_header(header).partitions) == 5_000
    assert assigned(header, 7, 9).startswith(b"\x08\x05\x12")
    after = insert_header._remembered.cache_info(), insert_header._assigned_before.cache_info()
    assert before == after
