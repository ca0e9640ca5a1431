"""Reads and replaces a list of ids in a header that is otherwise kept as it is."""

from typing import Final

from schemas.encoding.fields import copied, few_fields, field
from schemas.encoding.varint import Malformed, read_varint, signed, varint

IDS_BYTES_MAX: Final = 512 * 1024
"""Of one list: 50,000 ids, of which a header has some hundreds."""


def read_ids(header: bytes, number: int) -> tuple[int, ...]:
    """The int64s of field `number`, packed or one by one. Raises Malformed."""
    ids: list[int] = []
    for tag, first, stop in few_fields(header, 0, len(header)):
        # Packed or one by one: protobuf lets a writer choose, and a reader must take both.
        if tag == number << 3:
            ids.append(signed(first))
        elif tag == number << 3 | 2:
            at = first
            if stop - at > IDS_BYTES_MAX:
                raise Malformed(f"a list of ids of {stop - at} bytes", first)
            while at < stop:
                value, at = read_varint(header, at, stop)
                ids.append(signed(value))
    return tuple(ids)


def with_ids(header: bytes, number: int, ids: tuple[int, ...]) -> bytes:
    """The header with these, and no other, ids in field `number`. Raises Malformed."""
    parts = [
        copied(header, tag, first, stop)
        for tag, first, stop in few_fields(header, 0, len(header))
        if tag >> 3 != number
    ]
    if ids:
        parts.append(field(number << 3 | 2, b"".join([varint(each) for each in ids])))
    return b"".join(parts)
