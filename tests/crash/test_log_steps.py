"""The power is cut, or an operation fails, at each single change a log makes to its disk."""

import errno
from itertools import pairwise

import pytest

from broker.ports.wal import Corrupt, UnknownFormat
from tests.broker.wal.faulty_files import FaultyFiles, PowerCut
from tests.crash.log_script import Life, everything, live, live_until_cut


def steps_of_a_life() -> int:
    life = Life(FaultyFiles())
    live(life)
    return life.files.steps


@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_at_any_step_loses_nothing_acknowledged(seed: int) -> None:
    for cut_at in range(1, steps_of_a_life() + 1):
        life = Life(FaultyFiles(seed=seed * 1000 + cut_at))
        life.files.cut_at = cut_at
        assert live_until_cut(life)
        life.survive(life.files.after_power_cut())
        opened = life.open()
        life.check(opened)
        life.append(opened, 3, messages=2, size=100)
        opened.writer.close()
        life.check(life.open())


@pytest.mark.parametrize("seed", range(3))
def test_a_second_cut_during_recovery_loses_nothing_either(seed: int) -> None:
    for cut_at in range(1, steps_of_a_life() + 1, 3):
        again_at = 0
        while True:
            again_at += 1
            life = Life(FaultyFiles(seed=seed * 1000 + cut_at))
            life.files.cut_at = cut_at
            live_until_cut(life)
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


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_at_any_step_loses_nothing_acknowledged(seed: int) -> None:
    for cut_at in range(1, steps_of_a_life() + 1):
        life = Life(FaultyFiles(seed=seed * 1000 + cut_at))
        life.files.cut_at = cut_at
        live_until_cut(life)
        life.survive(life.files.after_kill())
        life.check(life.open())


@pytest.mark.parametrize(
    "kind", ["write", "sync", "allocate", "create", "rename", "sync_folder", "replace", "remove"]
)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_any_operation_may_fail_and_the_next_term_continues(kind: str, code: int) -> None:
    counted = Life(FaultyFiles())
    live(counted)
    for nth in range(1, counted.files.counts[kind] + 1):
        life = Life(FaultyFiles(seed=nth))
        life.files.faults[kind, nth] = code
        live_until_cut(life)
        life.survive(life.files.after_power_cut() if nth % 2 else life.files)
        life.check(life.open())
        life.survive(life.files.after_power_cut())
        life.check(life.open())  # what one owner read back, the next one finds, too
        opened = life.open()
        life.append(opened, 2, messages=1, size=10)
        assert everything(opened)[-1].term == life.term


def test_a_disk_that_lies_about_syncs_is_detected_or_leaves_a_readable_prefix() -> None:
    """Nothing can save what such a disk drops; but what is read is never wrong or out of order."""
    for seed in range(60):
        life = Life(FaultyFiles(seed=seed, lies=True))
        life.files.cut_at = 20 + 3 * seed
        live_until_cut(life)
        known = {r.base_id: r for r in (*life.acknowledged, *life.tried)}
        life.survive(life.files.after_power_cut())
        try:
            found = everything(life.open())
        except (Corrupt, UnknownFormat):
            continue
        assert [known[r.base_id] for r in found] == found
        assert all(a.next_id == b.base_id for a, b in pairwise(found))
