"""`messages.InsertMessageHeader`: reads it for every insert into a collection, writes its segment.

Written by hand because it is on the write path. Unknown fields are kept.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from schemas.encoding.fields import copied, few_fields, field
from schemas.encoding.varint import signed, varint

_PARTITION: Final = 0x12
_ROWS: Final = 0x10
_SIZE: Final = 0x18
_SEGMENT: Final = 0x22
_REMEMBERED_BYTES_MAX: Final = 512
"""Of a header; a longer one is read each time, so that the memory is bounded."""


class PartitionRows(NamedTuple):
    """`messages.PartitionSegmentAssignment`: rows of one partition; 0 when absent."""

    partition_id: int
    rows: int
    size_bytes: int
    segment_id: int


class InsertHeader(NamedTuple):
    """The decoded header. `schema_version` is None when absent, which differs from 0."""

    collection_id: int
    partitions: tuple[PartitionRows, ...]
    schema_version: int | None


def read_insert_header(header: bytes) -> InsertHeader:
    """Raises Malformed."""
    return (_remembered if len(header) <= _REMEMBERED_BYTES_MAX else _read)(header)


def _read(header: bytes) -> InsertHeader:
    collection_id = 0
    partitions: list[PartitionRows] = []
    schema_version: int | None = None
    for tag, first, stop in few_fields(header, 0, len(header)):
        match tag:
            case 0x08:
                collection_id = signed(first)
            case 0x12:
                partitions.append(_read_partition(header[first:stop]))
            case 0x18:
                schema_version = signed(first)
            case _:  # others' fields
                pass
    return InsertHeader(collection_id, tuple(partitions), schema_version)


def assigned(header: bytes, segment_id: int, size_bytes: int) -> bytes:
    """The header with this segment for its rows, and their size where it says none."""
    short = len(header) <= _REMEMBERED_BYTES_MAX
    return (_assigned_before if short else _with_segment)(header, segment_id, size_bytes)


def _with_segment(header: bytes, segment_id: int, size_bytes: int) -> bytes:
    parts: list[bytes] = []
    for tag, first, stop in few_fields(header, 0, len(header)):
        if tag == _PARTITION:
            parts.append(field(tag, _assigned(header[first:stop], segment_id, size_bytes)))
        else:
            parts.append(copied(header, tag, first, stop))
    return b"".join(parts)


def with_rows(header: bytes, rows: int, size_bytes: int, segment_id: int = 0) -> bytes:
    """The header with these counts; with the segment too, unless 0. Raises Malformed."""
    parts: list[bytes] = []
    for tag, first, stop in few_fields(header, 0, len(header)):
        if tag != _PARTITION:
            parts.append(copied(header, tag, first, stop))
            continue
        replaced = (_ROWS, _SIZE, _SEGMENT) if segment_id else (_ROWS, _SIZE)
        kept = [
            copied(header, tag, start, end)
            for tag, start, end in few_fields(header, first, stop)
            if tag not in replaced
        ]
        counts = [b"\x10", varint(rows), b"\x18", varint(size_bytes)]
        if segment_id:
            counts.append(field(_SEGMENT, b"\x08" + varint(segment_id)))
        parts.append(field(_PARTITION, b"".join(kept + counts)))
    return b"".join(parts)


def _read_partition(data: bytes) -> PartitionRows:
    partition_id = rows = size_bytes = segment_id = 0
    for tag, first, stop in few_fields(data, 0, len(data)):
        match tag:
            case 0x08:
                partition_id = signed(first)
            case 0x10:
                rows = first
            case 0x18:
                size_bytes = first
            case 0x22:
                segment_id = _read_segment(data[first:stop])
            case _:
                pass
    return PartitionRows(partition_id, rows, size_bytes, segment_id)


def _read_segment(data: bytes) -> int:
    ids = [signed(first) for tag, first, _ in few_fields(data, 0, len(data)) if tag == 0x08]
    return ids[-1] if ids else 0


def _assigned(data: bytes, segment_id: int, size_bytes: int) -> bytes:
    parts: list[bytes] = []
    said = 0
    for tag, first, stop in few_fields(data, 0, len(data)):
        if tag == _SIZE:
            said = first
        elif tag != _SEGMENT:
            parts.append(copied(data, tag, first, stop))
    # As Milvus: a size that the client gave stays.
    size = varint(said or size_bytes)
    parts += [bytes([_SIZE]), size, field(_SEGMENT, b"\x08" + varint(segment_id))]
    return b"".join(parts)


_remembered = lru_cache(maxsize=1024)(_read)
_assigned_before = lru_cache(maxsize=1024)(_with_segment)
