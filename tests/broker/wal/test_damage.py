"""Changed bytes on disk: refused with file and offset, skipped only with skip_damage."""

import random
from dataclasses import dataclass, field
from itertools import permutations

import pytest

from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.record import Record
from broker.ports.wal import Corrupt, UnknownFormat
from broker.wal.segmented import SegmentedSettings, SegmentedWal, record_format
from broker.wal.segmented.formats.record_parts import MARKS
from broker.wal.segmented.record_format import BadRecord, Window, encode, record_at, salt_of
from broker.wal.segmented.segment import HEADER_BYTES
from broker.wal.segmented.segmented_wal import Opened
from tests.broker.wal.faulty_files import AtOnce, FaultyFiles
from tests.broker.wal.some_records import batched, group, in_txn, record, with_own

CHANNEL = PChannelName("c")
RECORD_BYTES = 68 + 26 + 2 * 4 + 2 * 100


@dataclass(slots=True)
class Shelf:
    """A log of three segments of six records each; the last one is not sealed."""

    files: FaultyFiles = field(default_factory=FaultyFiles)
    reported: list[Corrupt] = field(default_factory=list)
    term: int = 0
    written: list[Record] = field(default_factory=list)

    def open(self, *, skip: bool = False) -> Opened:
        self.term += 1
        size = HEADER_BYTES + 6 * RECORD_BYTES
        settings = SegmentedSettings(
            segment_bytes=size, first_segment_bytes=size, index_spacing_bytes=500, skip_damage=skip
        )
        wal = SegmentedWal(
            self.files, settings, background=AtOnce(), on_damage=self.reported.append
        )
        return wal.open_now(CHANNEL, Term(self.term))

    def fill(self) -> "Shelf":
        opened = self.open()
        for at in range(1, 37, 4):
            opened.writer.append(group(at, 2, messages=2, size=100))
            self.written += group(at, 2, messages=2, size=100)
        self.files = self.files.after_kill()
        assert len(self.segments()) == 3
        return self

    def segments(self) -> list[str]:
        return sorted(p for p in self.files.names if p.endswith(".log"))

    def flip(self, path: str, offset: int, bit: int = 0) -> None:
        self.files.names[path].cached[offset] ^= 1 << bit
        self.files.names[path].durable[:] = self.files.names[path].cached

    def offset_of(self, record: int) -> int:
        return HEADER_BYTES + record * RECORD_BYTES


def read_on(opened: Opened) -> list[Record]:
    found, at = list[Record](), opened.writer.bounds().first_id
    while at < opened.writer.bounds().next_id:
        batch = opened.reader.read(at, 1000)
        if not batch:
            break
        found += batch
        at = MessageId(batch[-1].next_id)
    return found


def test_the_damaged_log_used_here_is_as_described() -> None:
    shelf = Shelf().fill()
    assert read_on(shelf.open()) == shelf.written


@pytest.mark.parametrize("segment", [0, 1])
def test_a_flipped_bit_in_a_sealed_segment_is_reported_by_file_and_offset(segment: int) -> None:
    for bit in range(0, RECORD_BYTES * 8, 37):
        shelf = Shelf().fill()
        path = shelf.segments()[segment]
        shelf.flip(path, shelf.offset_of(2) + bit // 8, bit % 8)
        opened = shelf.open()
        first = MessageId(1 + segment * 12)
        good = opened.reader.read(first, 2 * RECORD_BYTES)
        assert good == shelf.written[segment * 6 : segment * 6 + 2]
        with pytest.raises((Corrupt, UnknownFormat)) as caught:
            opened.reader.read(MessageId(first + 4), 1)
        if isinstance(caught.value, Corrupt):
            assert (caught.value.file, caught.value.offset) == (path, shelf.offset_of(2))
        with pytest.raises((Corrupt, UnknownFormat)):
            read_on(opened)


def test_a_flipped_bit_in_the_middle_of_the_last_segment_is_no_torn_tail() -> None:
    shelf = Shelf().fill()
    path = shelf.segments()[-1]
    shelf.flip(path, shelf.offset_of(2) + 150)
    with pytest.raises(Corrupt) as caught:
        shelf.open()
    assert (caught.value.file, caught.value.offset) == (path, shelf.offset_of(2))


def test_a_flipped_bit_in_the_last_group_is_cut_as_a_torn_tail() -> None:
    shelf = Shelf().fill()
    shelf.flip(shelf.segments()[-1], shelf.offset_of(4) + 150)
    assert read_on(shelf.open()) == shelf.written[:-2]


@pytest.mark.parametrize("record", [0, 2, 8, 12, 14])
def test_reading_continues_behind_damage_with_skip_damage(record: int) -> None:
    shelf = Shelf().fill()
    path = shelf.segments()[record // 6]
    shelf.flip(path, shelf.offset_of(record % 6) + 150)
    opened = shelf.open(skip=True)
    assert read_on(opened) == [r for i, r in enumerate(shelf.written) if i != record]
    assert (shelf.reported[0].file, shelf.reported[0].offset) == (
        path,
        shelf.offset_of(record % 6),
    )
    assert opened.writer.bounds().next_id == 37
    opened.writer.append(group(37, 1, term=shelf.term))
    again = shelf.open(skip=True)
    assert len(read_on(again)) == len(shelf.written)


def test_a_whole_segment_may_be_unreadable_with_skip_damage() -> None:
    shelf = Shelf().fill()
    path = shelf.segments()[1]
    for offset in range(HEADER_BYTES, HEADER_BYTES + 6 * RECORD_BYTES, 50):
        shelf.flip(path, offset)
    assert read_on(shelf.open(skip=True)) == shelf.written[:6] + shelf.written[12:]


@pytest.mark.parametrize("segment", [0, 1, 2])
def test_a_damaged_header_is_refused_or_rebuilt(segment: int) -> None:
    shelf = Shelf().fill()
    path = shelf.segments()[segment]
    shelf.flip(path, 40)
    with pytest.raises(Corrupt) as caught:
        shelf.open()
    assert (caught.value.file, caught.value.offset) == (path, 0)
    assert read_on(shelf.open(skip=True)) == shelf.written
    assert shelf.reported[0].file == path


def test_a_missing_segment_is_refused_or_skipped() -> None:
    shelf = Shelf().fill()
    path = shelf.segments()[1]
    del shelf.files.names[path]
    with pytest.raises(Corrupt, match="missing"):
        shelf.open()
    opened = shelf.open(skip=True)
    assert read_on(opened) == shelf.written[:6] + shelf.written[12:]
    assert path in [damage.file for damage in shelf.reported]


def test_a_segment_that_is_shorter_than_its_seal_is_refused() -> None:
    shelf = Shelf().fill()
    path = shelf.segments()[1]
    inode = shelf.files.names[path]
    del inode.cached[shelf.offset_of(5) :]
    with pytest.raises(Corrupt) as caught:
        shelf.open()
    assert (caught.value.file, caught.value.offset) == (path, shelf.offset_of(5))


@pytest.mark.parametrize("how", ["missing", "damaged", "of another version", "short"])
def test_an_unusable_index_is_rebuilt(how: str) -> None:
    shelf = Shelf().fill()
    for path in [p for p in shelf.files.names if p.endswith(".index")]:
        data = shelf.files.names[path].cached
        match how:
            case "missing":
                del shelf.files.names[path]
            case "damaged":
                data[60] ^= 1
            case "of another version":
                data[8] = 2
            case _:
                del data[30:]
    opened = shelf.open()
    assert read_on(opened) == shelf.written
    assert opened.reader.seek_tick(TimeTick(170)) == 17
    again = shelf.open()
    path = shelf.segments()[0].replace(".log", ".index")
    assert shelf.files.names[path].cached[8] == 1, "stored again"
    assert read_on(again) == shelf.written


def test_an_unknown_version_of_a_segment_is_named_beside_the_known_one() -> None:
    shelf = Shelf().fill()
    path = shelf.segments()[1]
    shelf.files.names[path].cached[8] = 7
    with pytest.raises(UnknownFormat, match="version 7; this program reads version 2") as caught:
        shelf.open(skip=True)
    assert caught.value.file == path


@pytest.mark.parametrize("segment", [0, 2])
def test_an_unknown_version_of_a_record_is_named_beside_the_known_one(segment: int) -> None:
    shelf = Shelf().fill()
    path = shelf.segments()[segment]
    shelf.flip(path, shelf.offset_of(4) + 4, 3)
    with pytest.raises(UnknownFormat, match="version 9; this program reads version 6"):
        read_on(shelf.open())


def test_a_message_that_looks_like_a_record_never_becomes_one() -> None:
    """A client that knows all but the salt sends a good record as payload; its own record tears."""
    shelf = Shelf()
    opened = shelf.open()
    opened.writer.append(group(1, 1, messages=2, size=100))
    forged = b"".join(encode(group(3, 1)[0], 5, 0)) * 3
    carrier = Record(
        Term(1), MessageId(3), TimeTick(30), MessageId(3), 2, "v", (len(forged),), forged
    )
    opened.writer.append([carrier])
    path = shelf.segments()[-1]
    shelf.files = shelf.files.after_kill()
    shelf.flip(path, shelf.offset_of(1) + 60)
    assert read_on(shelf.open()) == group(1, 1, messages=2, size=100)


def test_random_damage_never_changes_what_is_read() -> None:
    chance = random.Random(11)
    for _ in range(300):
        shelf = Shelf().fill()
        path = chance.choice(sorted(shelf.files.names))
        data = shelf.files.names[path].cached
        if not data:
            continue
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(1, 40)] = chance.randbytes(chance.randrange(1, 40))
        try:
            found = read_on(shelf.open(skip=chance.random() < 0.5))
        except (Corrupt, UnknownFormat):
            continue
        known = {r.base_id: r for r in shelf.written}
        assert [known[r.base_id] for r in found] == found


VERSIONS = {
    1: record(3),
    2: in_txn(record(3)),
    3: batched(record(3, messages=3)),
    5: with_own(record(3)),
    6: in_txn(with_own(record(3))),
}


@pytest.mark.parametrize(("version", "other"), list(permutations(VERSIONS, 2)))
def test_the_version_of_a_record_lies_outside_its_checksum_and_is_guarded_all_the_same(
    version: int, other: int
) -> None:
    """One version read as another would cut its body somewhere else."""
    good = VERSIONS[version]
    head, body = encode(good, 3, 77)
    files = FaultyFiles()
    file = files.open("r", create=True)
    file.write_durable(0, [head + body])
    window = Window(file, "r", len(head + body), 1 << 16)
    assert record_at(window, 0, 77).record == good
    assert salt_of(window, 0) == 77
    file.write_durable(4, [bytes([other])])
    with pytest.raises(BadRecord, match=r"checksum|lengths"):
        record_at(Window(file, "r", len(head + body), 1 << 16), 0, 77)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("own_in_txn", [False, True])
def test_a_release_that_does_not_know_own_properties_refuses_a_log_with_them(
    own_in_txn: bool, sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not take them for a torn tail: that would cut off durable messages."""
    shelf = Shelf()
    opened = shelf.open()
    opened.writer.append(group(1, 2, messages=1))
    newer = with_own(record(3))
    opened.writer.append([in_txn(newer) if own_in_txn else newer])
    if sealed:
        for at in range(4, 40, 4):
            opened.writer.append(group(at, 2, messages=2, size=100))
    shelf.files = shelf.files.after_kill()
    assert (len(shelf.segments()) > 1) == sealed
    known = {version: mark for version, mark in MARKS.items() if version < 5}
    ids = {key: version for key, version in record_format._VERSIONS.items() if version < 5}
    monkeypatch.setattr(record_format, "MARKS", known)
    monkeypatch.setattr(record_format, "_VERSIONS", ids)
    newest = 6 if own_in_txn else 5
    with pytest.raises(UnknownFormat, match=f"version {newest}; this program reads version 4"):
        read_on(shelf.open())
