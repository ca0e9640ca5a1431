"""Entries of the properties map, usual and odd, first read and remembered."""

from hypothesis import given

from schemas.encoding.entries import read_entry, write_entry
from schemas.encoding.fields import fields
from schemas.generated.milvus.proto.messages import Message
from tests.schemas import messages


@given(messages.any_keys, messages.texts)
def test_an_entry_comes_back_and_is_what_betterproto_reads(key: str, value: str) -> None:
    encoded = write_entry(b"\x12", key, value)
    assert Message.parse(encoded).properties == {key: value}
    ((_, first, stop),) = fields(encoded, 0, len(encoded))
    for _ in range(2):  # the second time from memory
        assert read_entry(encoded[first:stop]) == (key, value)


@given(messages.odd_entries())
def test_an_odd_entry_means_the_same(odd: tuple[str, str, bytes]) -> None:
    key, value, content = odd
    assert read_entry(content) == (key, value)


def test_a_remembered_entry_is_told_from_one_with_another_tag() -> None:
    assert write_entry(b"\x12", "_t", "2")[:1] == b"\x12"
    assert write_entry(b"\x1a", "_t", "2")[:1] == b"\x1a"
