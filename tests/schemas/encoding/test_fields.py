"""Walking over fields of every wire type, and naming what breaks the format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.fields import FEW_MAX, GROUP_FIELDS_MAX, few_fields, field, fields
from schemas.encoding.varint import Malformed, varint
from tests.schemas import messages


def walk(data: bytes) -> list[tuple[int, int, int]]:
    return list(fields(data, 0, len(data)))


@given(st.lists(messages.unknown_fields()))
def test_any_fields_are_walked_over_to_the_end(encoded: list[bytes]) -> None:
    found = walk(b"".join(encoded))
    assert len(found) == len(encoded)


def test_each_wire_type_has_its_content() -> None:
    data = b"\x08\x96\x01" + field(0x12, b"abc") + b"\x19" + bytes(8) + b"\x25" + bytes(4)
    (number, text, wide, narrow) = walk(data)
    assert number[:2] == (0x08, 150)
    assert data[text[1] : text[2]] == b"abc"
    assert (wide[2] - wide[1], narrow[2] - narrow[1]) == (8, 4)


def test_groups_nest_and_are_one_field() -> None:
    data = b"\x0b\x13\x08\x01\x14\x1b\x1c\x0c"
    assert walk(data) == [(0x0B, 1, 7)]


def test_deep_groups_are_malformed_and_no_recursion() -> None:
    with pytest.raises(Malformed, match="nested"):
        walk(b"\x0b" * 100_000)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x00\x00", "field number 0"),
        (varint(2**29 << 3), "field number 536870912"),
        (b"\x0c", "wire type 4"),
        (b"\x0e", "wire type 6"),
        (b"\x0f", "wire type 7"),
        (b"\x0b\x14", "group 2"),
        (b"\x0b", "cut off"),
        (b"\x12\x02a", "length of 2"),
        (b"\x12\xff\xff\xff\xff\x7f", "length of 34359738367"),
        (b"\x11" + bytes(7), "fixed-width"),
        (b"\x15" + bytes(3), "fixed-width"),
    ],
)
def test_what_breaks_the_format_is_named(data: bytes, what: str) -> None:
    with pytest.raises(Malformed, match=what):
        walk(data)


def test_nothing_is_read_past_the_end_given() -> None:
    with pytest.raises(Malformed):
        list(fields(b"\x12\x03abc", 0, 4))


def test_few_fields_are_those_of_all_and_very_many_are_malformed() -> None:
    data = b"\x78\x01" * FEW_MAX
    assert list(few_fields(data, 0, len(data))) == list(fields(data, 0, len(data)))
    with pytest.raises(Malformed, match=f"more than {FEW_MAX} fields"):
        list(few_fields(data + b"\x78\x01", 0, len(data) + 2))


def test_a_group_of_very_many_fields_is_malformed_wherever_they_are() -> None:
    inner = b"\x78\x01" * (GROUP_FIELDS_MAX - 1)
    assert walk(b"\x0b" + inner + b"\x0c")
    with pytest.raises(Malformed, match=f"a group of more than {GROUP_FIELDS_MAX} fields"):
        walk(b"\x0b" + inner + b"\x78\x01\x0c")
    with pytest.raises(Malformed, match=f"a group of more than {GROUP_FIELDS_MAX} fields"):
        walk(b"\x0b\x13" + inner + b"\x14\x0c")


def test_fields_in_groups_count_among_few() -> None:
    group = b"\x0b" + b"\x78\x01" * 999 + b"\x0c"
    assert list(few_fields(group * 32, 0, len(group) * 32))
    with pytest.raises(Malformed, match=f"more than {FEW_MAX} fields"):
        list(few_fields(group * 33, 0, len(group) * 33))
