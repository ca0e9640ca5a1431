"""The stored form of gaps, and of the headers of rewritten segments."""

import pytest

from broker.model.ids import MessageId, Term, TimeTick
from broker.ports.wal import UnknownFormat
from broker.wal.segmented.formats.gap_format import GAP_BYTES, GAP_IDS_MAX, Gap, GapMet, encode_gap
from broker.wal.segmented.record_format import (
    MAGIC,
    BadRecord,
    Window,
    frame_at,
    record_at,
    salt_of,
)
from broker.wal.segmented.segment import Edition, Link, SegmentHeader, SegmentName
from tests.broker.wal.faulty_files import FaultyFile, FaultyFiles, Inode

SALT = 77


def gap(base_id: int = 5, count: int = 10) -> Gap:
    ids = MessageId(base_id), MessageId(base_id + count)
    return Gap(0, GAP_BYTES, Term(3), *ids, TimeTick(50), TimeTick(149))


def window_of(data: bytes) -> Window:
    return Window(FaultyFile(FaultyFiles(), "r", Inode(bytearray(data))), "r", len(data), 1 << 16)


def test_a_gap_comes_back_as_it_was_stored() -> None:
    [stored] = encode_gap(gap(), SALT)
    assert stored.startswith(MAGIC)
    assert len(stored) == GAP_BYTES
    with pytest.raises(GapMet, match="ids 5 to 14 were given back") as met:
        record_at(window_of(stored), 0, SALT)
    assert met.value.gap == gap()
    frame = frame_at(window_of(stored), 0)
    assert (frame.is_gap, frame.base_id, frame.next_id, frame.name_bytes) == (True, 5, 15, 0)
    assert salt_of(window_of(stored), 0) == SALT


def test_more_ids_than_fit_are_several_gaps() -> None:
    parts = list(encode_gap(gap(1, 2 * GAP_IDS_MAX + 1), SALT))
    data, at, ids = b"".join(parts), 0, 1
    for _ in range(3):
        with pytest.raises(GapMet) as met:
            record_at(window_of(data), at, SALT)
        assert met.value.gap.base_id == ids
        at, ids = met.value.gap.end, met.value.gap.next_id
    assert ids == 2 * GAP_IDS_MAX + 2


def test_no_changed_byte_of_a_gap_goes_unnoticed() -> None:
    [stored] = encode_gap(gap(), SALT)
    for at in range(len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 0x11
        with pytest.raises((BadRecord, UnknownFormat)):
            record_at(window_of(bytes(damaged)), 0, SALT)
    for size in range(len(stored)):
        with pytest.raises(BadRecord):
            record_at(window_of(stored[:size]), 0, SALT)
    with pytest.raises(BadRecord):
        record_at(window_of(stored), 0, SALT + 1)


def test_a_release_without_gaps_would_refuse_the_log_and_not_cut_it() -> None:
    """Its checksum has the mark 0 and covers the version: what `_refuse_newer` looks for."""
    [stored] = encode_gap(gap(), SALT)
    newer = stored[:4] + (9).to_bytes(4, "little") + stored[8:]
    with pytest.raises(UnknownFormat):
        record_at(window_of(newer), 0, SALT)


def test_the_header_of_an_edition_has_its_name_and_its_end() -> None:
    name = SegmentName(Term(3), MessageId(11), Edition(7, 2))
    link = Link(SegmentName(Term(2), MessageId(1)), 5000)
    header = SegmentHeader("c", name, SALT, link, TimeTick(9), Term(2), 4321)
    assert SegmentHeader.decode(header.encode(), "f") == header
    assert SegmentName.of(name.log_file) == name
    assert name.original == SegmentName(Term(3), MessageId(11))
    assert sorted([name, name.original])[-1] == name
    for wrong in ("1-2-3.log", "1-2-3-4-5.log", "1-2-x-4.log"):
        assert SegmentName.of(wrong) is None
