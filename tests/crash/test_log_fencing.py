"""Fenced owners that still act: nothing they complete later is read or acknowledged.

The faulty disk calls back before each change, so a new owner can open the log in the middle of
anything the old one does.
"""

import random
from dataclasses import dataclass, field

import pytest

from broker.model.ids import Term
from broker.model.record import Record
from broker.ports.wal import Fenced
from broker.wal.segmented import SegmentedWal
from broker.wal.segmented.record_format import encode
from broker.wal.segmented.segmented_wal import Opened
from tests.broker.wal.faulty_files import AtOnce, FaultyFiles
from tests.broker.wal.some_records import group
from tests.crash.log_script import CHANNEL, TINY, everything


@dataclass(slots=True)
class Rivals:
    """A disk on which a rival takes the log over at a step that was chosen before."""

    files: FaultyFiles = field(default_factory=FaultyFiles)
    takeover_at: int = 0
    changes: int = 0
    rival_term: int = 2
    rival: Opened | None = None
    read_by_rival: list[Record] = field(default_factory=list)
    written_by_rival: list[Record] = field(default_factory=list)

    def open(self, term: int) -> Opened:
        wal = SegmentedWal(self.files, TINY, background=AtOnce(), salt=lambda: term)
        return wal.open_now(CHANNEL, Term(term))

    def watch(self) -> None:
        self.changes = 0
        self.files.on_step = self._before_a_change

    def _before_a_change(self, _kind: str, _path: str) -> None:
        self.changes += 1
        if self.changes == self.takeover_at:
            self.files.on_step = lambda _kind, _path: None
            self.take_over()

    def take_over(self) -> None:
        self.rival = self.open(self.rival_term)
        self.read_by_rival = list(everything(self.rival))
        self.written_by_rival = append(self.rival, 2)


def append(opened: Opened, records: int) -> list[Record]:
    batch = group(
        opened.writer.bounds().next_id, records, term=opened.claim.term, messages=2, size=90
    )
    opened.writer.append(batch)
    return batch


def act_until_fenced(old: Opened) -> list[Record]:
    """What the old owner has acknowledged."""
    acknowledged: list[Record] = []
    for count in (1, 3, 2, 4, 1, 5) * 3:
        try:
            acknowledged += append(old, count)
        except Fenced:
            return acknowledged
    raise AssertionError("the old owner never noticed")


@pytest.mark.parametrize("takeover_at", range(1, 60))
def test_a_takeover_in_the_middle_of_anything_keeps_what_was_acknowledged(takeover_at: int) -> None:
    rivals = Rivals(takeover_at=takeover_at)
    old = rivals.open(1)
    before = append(old, 2)
    rivals.watch()
    acknowledged = before + act_until_fenced(old)
    old.writer.close()
    assert rivals.rival is not None
    kept = rivals.read_by_rival
    assert kept[: len(acknowledged)] == acknowledged, "the new owner misses something"
    assert everything(rivals.rival) == kept + rivals.written_by_rival
    last = rivals.open(3)
    assert everything(last) == kept + rivals.written_by_rival, "a zombie's write came back"
    last.writer.close()


def test_what_a_fenced_owner_writes_behind_the_seal_is_never_read() -> None:
    files = FaultyFiles()
    rivals = Rivals(files)
    old = rivals.open(1)
    kept = append(old, 3)
    new = rivals.open(2)
    with pytest.raises(Fenced):
        append(old, 1)
    with pytest.raises(Fenced):
        append(old, 1)
    assert everything(new) == kept
    kept += append(new, 1)
    for term in (3, 4):
        assert everything(rivals.open(term)) == kept


@pytest.mark.parametrize("takeover_at", range(1, 16))
def test_two_owners_that_open_at_once_never_both_have_the_log(takeover_at: int) -> None:
    rivals = Rivals(takeover_at=takeover_at, rival_term=3)
    first = rivals.open(1)
    kept = append(first, 4)
    rivals.watch()
    try:
        slow = rivals.open(2)
    except Fenced:
        pass
    else:
        act_until_fenced(slow)
    if rivals.rival is None:
        rivals.take_over()
    assert rivals.rival is not None
    assert rivals.read_by_rival[: len(kept)] == kept
    expected = rivals.read_by_rival + rivals.written_by_rival
    assert everything(rivals.rival) == expected
    assert everything(rivals.open(4)) == expected


@pytest.mark.parametrize("seed", range(40))
def test_many_owners_in_any_order_leave_one_history(seed: int) -> None:
    chance, rivals = random.Random(seed), Rivals()
    owners, history = list[Opened](), list[Record]()
    for term in range(1, 15):
        owners.append(rivals.open(term))
        found = everything(owners[-1])
        assert list(found[: len(history)]) == history, "something acknowledged is gone"
        history = list(found)
        for _ in range(chance.randrange(6)):
            owner = chance.choice(owners)
            try:
                history += append(owner, chance.randrange(1, 6))
                assert owner is owners[-1], "only the newest owner may report success"
            except Fenced:
                assert owner is not owners[-1]
            if owner is not owners[-1] and chance.random() < 0.5:
                owner.writer.close()
                owners.remove(owner)
    assert everything(owners[-1]) == history


def test_an_overtaken_opening_fails_itself_and_not_the_first_append() -> None:
    rivals = Rivals(rival_term=3)
    append(rivals.open(1), 2)

    def overtake(kind: str, _path: str) -> None:
        if kind == "sync_folder" and rivals.files.counts["rename"] > renames:
            rivals.files.on_step = lambda _kind, _path: None
            rivals.take_over()

    renames = rivals.files.counts["rename"]
    rivals.files.on_step = overtake
    with pytest.raises(Fenced):
        rivals.open(2)


def test_a_term_is_given_to_one_of_two_that_ask_for_it_at_once() -> None:
    rivals = Rivals(rival_term=2, takeover_at=1)
    rivals.open(1).writer.close()
    rivals.watch()
    with pytest.raises(Fenced):
        rivals.open(2)
    assert rivals.rival is not None
    assert everything(rivals.rival) == rivals.written_by_rival


@pytest.mark.parametrize("seed", range(20))
def test_what_a_fenced_owner_writes_during_the_scan_is_durable_or_unseen(seed: int) -> None:
    files = FaultyFiles(seed=seed)
    rivals = Rivals(files)
    old = rivals.open(1)
    kept = append(old, 3)
    active = old.writer.active
    [late] = group(old.writer.bounds().next_id, 1, term=1, messages=1, size=90)

    def write_late(path: str) -> None:
        if files.counts.get("sync", 0) > syncs:  # the scan comes after the new owner's sync
            files.on_read = lambda _path: None
            parts = encode(late, late.base_id, active.header.salt)
            files.names[path].change(old.writer.view.active.end, b"".join(parts))

    syncs = files.counts["sync"]
    files.on_read = write_late
    kept = list(everything(rivals.open(2)))
    assert kept[-1] == late
    rivals.files = files.after_power_cut()
    assert everything(rivals.open(3)) == kept
