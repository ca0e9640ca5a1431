"""Iterates over the fields of an encoded protobuf message without knowing its type."""

from collections.abc import Iterator
from typing import Final

from schemas.encoding.varint import Malformed, read_varint, varint

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
GROUP: Final = 3
GROUP_END: Final = 4
FIXED32: Final = 5
_FIELD_NUMBER_MAX: Final = (1 << 29) - 1
_GROUP_DEPTH_MAX: Final = 100
FEW_MAX: Final = 32_768
"""More than any message that is read by position has; to read so many takes 15 ms."""
GROUP_FIELDS_MAX: Final = 1024
"""Of one group with all that is in it. No message of this protocol, nor of Milvus, has groups."""


def fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Each field as `(tag, first, stop)`; the tag is number << 3 | wire type.

    For every wire type but a varint the content is `data[first:stop]`. For a varint `first` is its
    value: never slice with it, because compiled code raises where `first` is greater than `stop`.
    A group is one field, its content not looked at beyond finding its end; it has at most
    GROUP_FIELDS_MAX. Raises Malformed at the first byte that breaks the format.
    """
    while position < end:
        tag = data[position]
        # One byte, and not field number 0: nearly every tag, so it is read without a call.
        if 7 < tag < 128:
            position += 1
        else:
            tag, position = read_tag(data, position, end)
        wire_type = tag & 7
        if wire_type == LENGTH:
            first, stop = read_length(data, position, end)
            position = stop
        elif wire_type == VARINT:
            first, stop = read_varint(data, position, end)
            position = stop
        else:
            first, stop, position = _content(data, tag, position, end)
        yield tag, first, stop


def few_fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The same for what a stranger has sent; more than FEW_MAX of them are Malformed.

    Two bytes are a field, so those of 16 MiB would take seconds. Those in groups count.
    """
    left = FEW_MAX
    for each in fields(data, position, end):
        left -= 1 if each[0] & 7 != GROUP else 1 + group_fields_max(each[1], each[2])
        if left < 0:
            raise Malformed(f"more than {FEW_MAX} fields", position)
        yield each


def group_fields_max(first: int, stop: int) -> int:
    """How many fields a group of these bytes may have had: each takes two at least."""
    return (stop - first) // 2


def field(tag: int, content: bytes) -> bytes:
    """Encode one length-delimited field; `tag` must be one byte."""
    return b"".join((varint(tag), varint(len(content)), content))


def copied(data: bytes, tag: int, first: int, stop: int) -> bytes:
    """Encode one field of `fields` again."""
    match tag & 7:
        case 0:
            return varint(tag) + varint(first)
        case 2:
            return field(tag, data[first:stop])
        case 3:
            return varint(tag) + data[first:stop] + varint(tag + 1)
        case _:
            return varint(tag) + data[first:stop]


def read_tag(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The tag at `position` and the position after it."""
    tag, after = read_varint(data, position, end)
    if not 0 < tag >> 3 <= _FIELD_NUMBER_MAX:
        raise Malformed(f"field number {tag >> 3}", position)
    return tag, after


def read_length(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Start and end of the length-delimited content whose length stands at `position`."""
    # Lengths of one and of two bytes are read without a call.
    if position < end and (first := data[position]) < 128:
        length, start = first, position + 1
    elif position + 1 < end and (second := data[position + 1]) < 128:
        length, start = first & 127 | second << 7, position + 2
    else:
        length, start = read_varint(data, position, end)
    if length > end - start:
        raise Malformed(f"a length of {length} where {end - start} bytes are left", position)
    return start, start + length


def _content(data: bytes, tag: int, position: int, end: int) -> tuple[int, int, int]:
    match tag & 7:
        case 0:
            value, after = read_varint(data, position, end)
            return value, after, after
        case 2:
            start, stop = read_length(data, position, end)
            return start, stop, stop
        case 1:
            return _fixed(position, 8, end)
        case 5:
            return _fixed(position, 4, end)
        case 3:
            return _group(data, tag, position, end)
        case wire_type:
            raise Malformed(f"wire type {wire_type}", position)


def _fixed(position: int, width: int, end: int) -> tuple[int, int, int]:
    if end - position < width:
        raise Malformed("a fixed-width number that is cut off", position)
    return position, position + width, position + width


def _group(data: bytes, tag: int, start: int, end: int) -> tuple[int, int, int]:
    """Skip to the matching end; open groups are a list, so that depth cannot exhaust the stack."""
    open_groups = [tag]
    position, left = start, GROUP_FIELDS_MAX
    while open_groups:
        content_end = position
        left -= 1
        if left < 0:
            raise Malformed(f"a group of more than {GROUP_FIELDS_MAX} fields", position)
        inner, position = read_tag(data, position, end)
        if inner & 7 == GROUP_END:
            if inner >> 3 != open_groups.pop() >> 3:
                raise Malformed(f"the end of group {inner >> 3}, which is not open", content_end)
        elif inner & 7 == GROUP:
            open_groups.append(inner)
            if len(open_groups) > _GROUP_DEPTH_MAX:
                raise Malformed(f"groups nested deeper than {_GROUP_DEPTH_MAX}", content_end)
        else:
            position = _content(data, inner, position, end)[2]
    return start, content_end, position
