"""The power is cut, the process killed, or a rival comes, at every single step of a log whose
records are thinned."""

import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from broker.core.space.record_runs import kept_runs
from broker.model.ids import MessageId, Term
from broker.model.record import Record
from broker.ports.wal import Fenced, WalError
from broker.wal.segmented import SegmentedWal
from broker.wal.segmented.editions import Editions
from broker.wal.segmented.segmented_wal import Opened
from broker.wal.segmented.verdicts import left_by
from tests.broker.wal.faulty_files import AtOnce, FaultyFiles, PowerCut
from tests.broker.wal.some_records import batched, in_txn, record
from tests.crash.log_script import CHANNEL, TINY, Life
from tests.crash.space_script import everything_left


@dataclass(slots=True)
class ThinLife(Life):
    """`doomed`: the ids of messages that may be missing, because they were to be removed."""

    doomed: set[int] = field(default_factory=set)
    editions: dict[int, Editions] = field(default_factory=dict)

    def append_batches(self, opened: Opened, records: int, size: int) -> None:
        next_id = opened.writer.bounds().next_id
        self.tried = []
        for at in range(next_id, next_id + 3 * records, 3):
            plain = batched(record(at, term=self.term, messages=3, size=size))
            self.tried.append(in_txn(plain) if at % 2 else plain)
        opened.writer.append(self.tried)
        self.acknowledged += self.tried
        self.tried = []

    def thin(self, opened: Opened, every: int) -> int:
        """Remove every so many messages of the sealed segments."""
        writer, given = opened.writer, 0
        editions = self.editions.setdefault(
            self.term, Editions(opened.place, opened.claim, writer, opened.reader)
        )

        def left(it: Record) -> tuple[Record, ...]:
            return kept_runs(it, [id % every > 0 for id in range(it.base_id, it.next_id)])

        for segment in writer.view.sealed:
            if not writer.view.active.size_bytes:
                return given
            self.doomed |= {it for it in range(segment.base_id, segment.next_id) if not it % every}
            with suppress(OSError):  # the log goes on; the next opening removes what is left
                new = editions.rewrite(segment, left_by(left), lambda: None)
                if new is not None:
                    given += segment.size_bytes - new.size_bytes
        return given

    def check(self, opened: Opened) -> None:
        """All that was acknowledged and is needed, as it was, in order, and nothing else."""
        found = everything_left(opened)
        known = {
            id: kept_runs(it, [at == id for at in range(it.base_id, it.next_id)])[0]
            for it in (*self.acknowledged, *self.tried)
            for id in range(it.base_id, it.next_id)
        }
        singles = [
            kept_runs(it, [at == id for at in range(it.base_id, it.next_id)])[0]
            for it in found
            for id in range(it.base_id, it.next_id)
        ]
        assert singles == [known[it.base_id] for it in singles]
        ids = [it.base_id for it in singles]
        assert ids == sorted(set(ids))
        needed = {id for it in self.acknowledged for id in range(it.base_id, it.next_id)}
        assert needed - self.doomed <= set(ids), "lost what somebody needs"
        if self.tried and ids and ids[-1] >= self.tried[0].base_id:
            self.acknowledged += [it for it in self.tried if it.base_id <= ids[-1]]
        self.tried = []


def live(life: ThinLife) -> None:
    for every in (3, 2):
        opened = life.open()
        life.check(opened)
        for records, size in ((6, 60), (6, 120), (4, 200), (2, 60)):
            life.append_batches(opened, records, size)
        life.thin(opened, every)
        life.append_batches(opened, 2, 60)
        life.thin(opened, every)
        life.check(opened)
        opened.writer.close()


def lived_until_cut(life: ThinLife) -> bool:
    with suppress(PowerCut, WalError):
        live(life)
        return life.files.dead
    return True


def steps_of_a_life() -> int:
    life = ThinLife(FaultyFiles())
    live(life)
    return life.files.steps


def test_a_life_gives_space_back() -> None:
    life = ThinLife(FaultyFiles())
    opened = life.open()
    for _ in range(6):
        life.append_batches(opened, 8, 80)
    before = opened.writer.bounds().size_bytes
    assert life.thin(opened, 2) > before // 5
    life.check(opened)
    ids = {id for it in everything_left(opened) for id in range(it.base_id, it.next_id)}
    assert not ids & life.doomed


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_a_cut_or_kill_at_any_step_loses_nothing_that_is_needed(seed: int, power: bool) -> None:
    for cut_at in range(1, steps_of_a_life() + 1):
        life = ThinLife(FaultyFiles(seed=seed * 1000 + cut_at))
        life.files.cut_at = cut_at
        assert lived_until_cut(life)
        life.survive(life.files.after_power_cut() if power else life.files.after_kill())
        opened = life.open()
        life.check(opened)
        life.append_batches(opened, 3, 100)
        life.thin(opened, 2)
        life.check(opened)
        opened.writer.close()
        life.check(life.open())


@pytest.mark.parametrize("seed", range(10))
def test_a_random_history_with_crashes_keeps_what_is_needed(seed: int) -> None:
    chance = random.Random(seed)
    life = ThinLife(FaultyFiles(seed=seed))
    for _ in range(6):
        if chance.random() < 0.6:
            life.files.cut_at = chance.randrange(1, 200)
        with suppress(PowerCut, WalError):
            opened = life.open()
            life.check(opened)
            for _ in range(chance.randrange(1, 20)):
                life.append_batches(opened, chance.randrange(1, 6), chance.choice((20, 200)))
                if chance.random() < 0.25:
                    life.thin(opened, chance.randrange(2, 6))
            life.check(opened)
        power = chance.random() < 0.6
        life.survive(life.files.after_power_cut() if power else life.files.after_kill())
    life.check(life.open())


@pytest.mark.parametrize("takeover_at", range(1, 40))
def test_a_takeover_in_the_middle_keeps_what_is_needed(takeover_at: int) -> None:
    life = ThinLife(FaultyFiles())
    old = life.open()
    for _ in range(4):
        life.append_batches(old, 8, 80)
    rivals, changes = list[Opened](), 0

    def before_a_change(_kind: str, _path: str) -> None:
        nonlocal changes
        changes += 1
        if changes == takeover_at:
            life.files.on_step = lambda _kind, _path: None
            wal = SegmentedWal(life.files, TINY, background=AtOnce(), salt=lambda: 99)
            rivals.append(wal.open_now(CHANNEL, Term(life.term + 1)))

    life.files.on_step = before_a_change
    with suppress(Fenced):
        life.thin(old, 3)
        life.thin(old, 2)
    for rival in rivals:
        life.term += 1
        life.check(rival)
        life.append_batches(rival, 4, 50)
        life.thin(rival, 2)
        life.check(rival)
        rival.writer.close()
        life.survive(life.files.after_power_cut())
        life.check(life.open())
    assert MessageId(1) in {it.base_id for it in everything_left(life.open())}
