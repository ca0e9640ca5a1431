"""The power is cut, the process killed, an operation fails or a rival comes, at every single step
of a log that gives space back."""

import errno
import random
from dataclasses import dataclass, field

import pytest

from broker.model.ids import Term
from broker.ports.wal import Fenced, WalError
from broker.wal.segmented import SegmentedWal
from broker.wal.segmented.segmented_wal import Opened
from tests.broker.wal.faulty_files import AtOnce, FaultyFiles, PowerCut
from tests.crash.log_script import CHANNEL, TINY
from tests.crash.space_script import (
    LIVE,
    ONE,
    OTHER,
    SpaceLife,
    everything_left,
    live_with_space,
    mixed_at_random,
    space_until_cut,
)


def steps_of_a_life() -> int:
    life = SpaceLife(FaultyFiles())
    live_with_space(life)
    return life.files.steps


def test_a_life_gives_space_back() -> None:
    life = SpaceLife(FaultyFiles())
    opened = life.open()
    for _ in range(6):
        life.append_mixed(opened, 8, messages=2, size=80)
    before = opened.writer.bounds().size_bytes
    assert life.give_back(opened, ONE, OTHER) > before // 2
    assert {it.vchannel for it in everything_left(opened) if it.base_id < 60} == {LIVE}
    names = life.files.list(CHANNEL)
    assert len([it for it in names if it.endswith(".log")]) == len(opened.writer.view.sealed) + 1
    used = sum(len(it.cached) for path, it in life.files.names.items() if path.endswith(".log"))
    opened.writer.close()
    reopened = life.open()
    life.check(reopened)
    assert used < 2 * before + 20_000


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_any_step_loses_nothing_that_is_needed(seed: int) -> None:
    for cut_at in range(1, steps_of_a_life() + 1):
        life = SpaceLife(FaultyFiles(seed=seed * 1000 + cut_at))
        life.files.cut_at = cut_at
        assert space_until_cut(life)
        life.survive(life.files.after_power_cut())
        opened = life.open()
        life.check(opened)
        life.append_mixed(opened, 3, messages=2, size=100)
        life.give_back(opened, ONE)
        life.check(opened)
        opened.writer.close()
        life.check(life.open())


@pytest.mark.parametrize("seed", range(2))
def test_a_second_cut_during_recovery_loses_nothing_either(seed: int) -> None:
    for cut_at in range(1, steps_of_a_life() + 1, 7):
        again_at = 0
        while True:
            again_at += 1
            life = SpaceLife(FaultyFiles(seed=seed * 1000 + cut_at))
            life.files.cut_at = cut_at
            space_until_cut(life)
            life.survive(life.files.after_power_cut())
            life.files.cut_at = again_at
            try:
                life.open()
            except PowerCut:
                pass
            if not life.files.dead:
                break
            life.survive(life.files.after_power_cut())
            life.check(life.open())


@pytest.mark.parametrize("seed", range(2))
def test_a_kill_at_any_step_loses_nothing_that_is_needed(seed: int) -> None:
    for cut_at in range(1, steps_of_a_life() + 1):
        life = SpaceLife(FaultyFiles(seed=seed * 1000 + cut_at))
        life.files.cut_at = cut_at
        space_until_cut(life)
        life.survive(life.files.after_kill())
        life.check(life.open())
        names = life.files.list(CHANNEL)
        assert not [it for it in names if it.endswith("-000001.new")], "no half edition is left"


@pytest.mark.parametrize(
    "kind", ["write", "sync", "create", "rename", "sync_folder", "replace", "remove"]
)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_any_operation_may_fail_and_the_next_term_continues(kind: str, code: int) -> None:
    counted = SpaceLife(FaultyFiles())
    live_with_space(counted)
    for nth in range(1, counted.files.counts[kind] + 1):
        life = SpaceLife(FaultyFiles(seed=nth))
        life.files.faults[kind, nth] = code
        space_until_cut(life)
        life.survive(life.files.after_power_cut() if nth % 2 else life.files)
        life.check(life.open())
        life.survive(life.files.after_power_cut())
        life.check(life.open())


@pytest.mark.parametrize("seed", range(30))
def test_a_random_history_with_crashes_keeps_what_is_needed(seed: int) -> None:
    chance = random.Random(seed)
    life = SpaceLife(FaultyFiles(seed=seed))
    for _ in range(6):
        if chance.random() < 0.6:
            life.files.cut_at = chance.randrange(1, 200)
        try:
            opened = life.open()
            life.check(opened)
            for _ in range(chance.randrange(1, 25)):
                mixed_at_random(life, opened, chance)
                if chance.random() < 0.2:
                    life.give_back(opened, *chance.sample((ONE, OTHER), chance.randrange(3)))
                if chance.random() < 0.1:
                    life.truncate(opened, chance.choice((1000, 10_000)))
            life.check(opened)
        except (PowerCut, WalError):
            pass
        power = chance.random() < 0.6
        life.survive(life.files.after_power_cut() if power else life.files.after_kill())
    life.check(life.open())


@dataclass(slots=True)
class Rivals:
    """A disk on which a rival takes the log over at a step that was chosen before."""

    life: SpaceLife = field(default_factory=lambda: SpaceLife(FaultyFiles()))
    takeover_at: int = 0
    changes: int = 0
    rival: Opened | None = None

    def watch(self) -> None:
        self.life.files.on_step = self._before_a_change

    def _before_a_change(self, _kind: str, _path: str) -> None:
        self.changes += 1
        if self.changes == self.takeover_at:
            self.life.files.on_step = lambda _kind, _path: None
            wal = SegmentedWal(self.life.files, TINY, background=AtOnce(), salt=lambda: 99)
            self.rival = wal.open_now(CHANNEL, Term(self.life.term + 1))


@pytest.mark.parametrize("takeover_at", range(1, 60))
def test_a_takeover_in_the_middle_keeps_what_is_needed(takeover_at: int) -> None:
    rivals = Rivals(takeover_at=takeover_at)
    life = rivals.life
    old = life.open()
    for _ in range(4):
        life.append_mixed(old, 8, messages=2, size=80)
    rivals.watch()
    try:
        life.give_back(old, ONE)
        life.give_back(old, ONE, OTHER)
    except Fenced:
        pass
    if rivals.rival is None:
        return
    life.term += 1
    life.check(rivals.rival)
    life.append_mixed(rivals.rival, 4, messages=2, size=50)
    assert life.give_back(rivals.rival, OTHER) >= 0
    life.check(rivals.rival)
    rivals.rival.writer.close()
    life.survive(life.files.after_power_cut())
    life.check(life.open())
