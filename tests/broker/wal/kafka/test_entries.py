"""Keys of what stands in a topic, and what is told of everything else that may stand there."""

import pytest

from broker.ports.wal import Corrupt, UnknownFormat
from broker.wal.kafka.entries import (
    Entry,
    EntryHead,
    EntryKind,
    TopicRecord,
    encode_key,
    entries_of,
)

GROUP = EntryHead(EntryKind.GROUP, 7, 41, 12, 100, 105, 1 << 60, (1 << 60) + 4, 4711, 1 << 59)
STATE = EntryHead(EntryKind.STATE, 7, 41, 12, 100, 100)


def found(key: bytes | None, value: bytes = b"value") -> Entry:
    [entry] = entries_of([TopicRecord(5, key, value)], "t", refuse)
    return entry


def refuse(damage: Corrupt) -> None:
    raise damage


@pytest.mark.parametrize("head", [GROUP, STATE, EntryHead(EntryKind.CLAIM, 1, -1)])
def test_what_was_encoded_is_read_as_it_was(head: EntryHead) -> None:
    assert found(encode_key(head, b"value")) == Entry(5, head, b"value")


@pytest.mark.parametrize("key", [None, b"", b"key", b"TdmK", b"\0" * 200])
def test_what_others_wrote_is_told_with_its_topic_and_offset(key: bytes | None) -> None:
    with pytest.raises(Corrupt, match=r"topic t: damaged at offset 5: .* not written by Tidemark"):
        found(key)


@pytest.mark.parametrize("at", range(6, len(encode_key(STATE, b""))))
def test_a_changed_byte_of_a_key_is_told(at: int) -> None:
    key = bytearray(encode_key(STATE, b"value"))
    key[at] ^= 0x40
    with pytest.raises(Corrupt, match="at offset 5"):
        found(bytes(key))


def test_a_key_that_is_cut_or_longer_is_told() -> None:
    for key in (encode_key(STATE, b"value")[:-1], encode_key(STATE, b"value") + b"x"):
        with pytest.raises(Corrupt, match="another form"):
            found(key)


def test_the_value_of_a_state_is_covered_and_that_of_a_group_checks_itself() -> None:
    with pytest.raises(Corrupt, match="checksum of its key"):
        found(encode_key(STATE, b"value"), b"other")
    assert found(encode_key(GROUP, b"value"), b"other").value == b"other"


def test_a_newer_version_is_no_damage() -> None:
    key = bytearray(encode_key(GROUP, b""))
    key[4] = 2
    with pytest.raises(UnknownFormat, match="format version 2; this program reads version 1"):
        found(bytes(key))


def test_what_is_not_ours_is_passed_over_where_damage_is_skipped() -> None:
    told = list[Corrupt]()
    ours = TopicRecord(6, encode_key(GROUP, b""), b"")
    entries = entries_of([TopicRecord(5, b"x", b""), ours], "t", told.append)
    assert [it.offset for it in entries] == [6]
    assert [it.offset for it in told] == [5]
