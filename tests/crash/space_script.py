"""A scripted history of a log that gives space back, and what must hold for whatever survives."""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from broker.model.ids import MessageId
from broker.model.record import Record
from broker.model.retention.dead import Dead
from broker.ports.wal import WalError
from broker.wal.segmented.editions import Editions
from broker.wal.segmented.segmented_wal import Opened
from tests.broker.wal.faulty_files import PowerCut
from tests.broker.wal.some_records import group
from tests.crash.log_script import Life

LIVE, ONE, OTHER = "c_1v0", "c_2v0", "c_3v0"


@dataclass(slots=True)
class SpaceLife(Life):
    """`doomed`: what may be missing, because its space was to be given back."""

    doomed: set[int] = field(default_factory=set)
    editions: dict[int, Editions] = field(default_factory=dict)  # by term: one owner each

    def append_mixed(self, opened: Opened, records: int, *, messages: int, size: int) -> None:
        next_id = opened.writer.bounds().next_id
        plain = group(next_id, records, term=self.term, messages=messages, size=size)
        self.tried = [
            replace(it, vchannel=(LIVE, ONE, ONE, OTHER)[(it.base_id // messages) % 4])
            for it in plain
        ]
        opened.writer.append(self.tried)
        self.acknowledged += self.tried
        self.tried = []

    def give_back(self, opened: Opened, *dropped: str) -> int:
        """As `SegmentedLog.give_back` does, for all sealed segments."""
        dead, given = Dead(dict.fromkeys(dropped, MessageId(1 << 62))), 0
        writer = opened.writer
        editions = self.editions.setdefault(
            self.term, Editions(opened.place, opened.claim, writer, opened.reader)
        )
        for segment in writer.view.sealed:
            if not writer.view.active.size_bytes:
                return given
            self.doomed |= {
                it.base_id
                for it in self.acknowledged
                if segment.base_id <= it.base_id < segment.next_id and dead.covers(it)
            }
            try:
                new = editions.give_back(segment, dead, lambda: None)
                if new is not None:
                    given += segment.size_bytes - new.size_bytes
            except OSError:
                pass  # the log goes on, and the next opening removes what is left
        return given

    def check(self, opened: Opened) -> None:
        """All that was acknowledged and is needed, in order, and nothing that nobody wrote."""
        bounds, found = opened.writer.bounds(), everything_left(opened)
        assert bounds.first_id <= self.first_id, "removed what nobody asked to remove"
        known = {it.base_id: it for it in (*self.acknowledged, *self.tried)}
        assert [known[it.base_id] for it in found] == list(found)
        ids = [it.base_id for it in found]
        assert ids == sorted(set(ids))
        needed = [
            it.base_id
            for it in self.acknowledged
            if it.base_id >= bounds.first_id and it.base_id not in self.doomed
        ]
        assert set(needed) <= set(ids), "lost what somebody needs"
        if self.acknowledged:
            assert bounds.next_id >= self.acknowledged[-1].next_id
        if self.tried and ids and ids[-1] >= self.tried[0].base_id:
            self.acknowledged += [it for it in self.tried if it.base_id <= ids[-1]]
        self.tried = []


def everything_left(opened: Opened) -> Sequence[Record]:
    """All records that the log holds, across gaps."""
    found, at = list[Record](), opened.writer.bounds().first_id
    while at < opened.writer.bounds().next_id:
        batch = opened.reader.read(at, 700)
        assert batch, f"nothing at or behind {at}"
        found += batch
        at = MessageId(found[-1].next_id)
    return found


def live_with_space(life: SpaceLife) -> None:
    """Three terms with several segments each; two collections are dropped one after the other."""
    for dropped in ((ONE,), (ONE, OTHER), (OTHER,)):
        opened = life.open()
        life.check(opened)
        for count, messages, size in ((4, 1, 40), (6, 2, 100), (4, 3, 60), (3, 1, 0), (8, 3, 40)):
            life.append_mixed(opened, count, messages=messages, size=size)
        life.give_back(opened, *dropped)
        life.append_mixed(opened, 2, messages=2, size=30)
        life.truncate(opened, 6000)
        life.check(opened)
        opened.writer.close()


def space_until_cut(life: SpaceLife) -> bool:
    """Whether the power was cut on the way, or a fault ended the life before its time."""
    with suppress(PowerCut, WalError):
        live_with_space(life)
        return life.files.dead
    return True


def mixed_at_random(life: SpaceLife, opened: Opened, chance: random.Random) -> None:
    """A few more records of any collection."""
    life.append_mixed(
        opened,
        chance.randrange(1, 8),
        messages=chance.randrange(1, 4),
        size=chance.choice((0, 20, 100, 300)),
    )
