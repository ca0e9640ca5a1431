"""Long random histories of a log compared with a list of records, with crashes anywhere."""

import errno
import random

import pytest

from broker.model.ids import MessageId, TimeTick
from broker.ports.wal import OutOfRange, WalError
from broker.wal.segmented.segmented_wal import Opened
from tests.broker.wal.faulty_files import FaultyFiles, PowerCut
from tests.broker.wal.some_records import seek_in
from tests.crash.log_script import Life

ACTIONS = ("append", "append", "append", "append", "read", "seek", "advance", "truncate", "reopen")
DISASTERS = ("cut soon", "kill", "fail", "full", "")


@pytest.mark.parametrize("seed", range(60))
def test_a_random_history_agrees_with_a_list(seed: int) -> None:
    chance = random.Random(seed)
    life = Life(FaultyFiles(seed=seed))
    for _ in range(8):
        prepare_disaster(life.files, chance)
        try:
            go_on(life, chance)
        except (PowerCut, WalError):
            pass
        survivor = life.files.after_power_cut if chance.random() < 0.6 else life.files.after_kill
        life.survive(survivor())
        life.files.capacity = None
    opened = life.open()
    life.check(opened)
    look_around(life, opened, chance)


def prepare_disaster(files: FaultyFiles, chance: random.Random) -> None:
    match chance.choice(DISASTERS):
        case "cut soon":
            files.cut_at = chance.randrange(1, 120)
        case "fail":
            kind = chance.choice(("write", "sync", "allocate", "create", "rename", "replace"))
            files.faults[kind, chance.randrange(1, 40)] = errno.EIO
        case "full":
            used = sum(len(inode.cached) for inode in files.names.values())
            files.capacity = used + chance.randrange(5000, 40_000)
        case _:
            pass


def go_on(life: Life, chance: random.Random) -> None:
    opened = life.open()
    life.check(opened)
    for _ in range(chance.randrange(1, 30)):
        match chance.choice(ACTIONS):
            case "append":
                messages, size = chance.randrange(1, 5), chance.choice((0, 1, 20, 100, 700))
                life.append(opened, chance.randrange(1, 5), messages=messages, size=size)
            case "truncate":
                life.truncate(opened, chance.choice((1, 1000, 4000, 10_000)))
            case "reopen":
                if chance.random() < 0.7:
                    opened.writer.close()
                opened = life.open()
                life.check(opened)
            case _:
                look_around(life, opened, chance)


def look_around(life: Life, opened: Opened, chance: random.Random) -> None:
    """Reads, seeks and advances at random places give what the list gives."""
    bounds = opened.writer.bounds()
    held = [r for r in life.acknowledged if r.base_id >= bounds.first_id]
    for _ in range(4):
        at = MessageId(chance.randrange(bounds.first_id - 2, bounds.next_id + 3))
        bytes_max = chance.choice((1, 300, 2000, 100_000))
        if not bounds.first_id <= at <= bounds.next_id:
            with pytest.raises(OutOfRange):
                opened.reader.read(at, bytes_max)
            continue
        found = opened.reader.read(at, bytes_max)
        after = [r for r in held if r.next_id > at]
        assert found == after[: len(found)]
        assert bool(found) == bool(after)
        tick = TimeTick(chance.randrange(bounds.last_tick + 20))
        assert opened.reader.seek_tick(tick) == seek_in(held, tick, bounds.next_id)
        until = MessageId(chance.randrange(at, bounds.next_id + 1))
        end = opened.reader.advance(at, until, bytes_max)
        assert at <= end <= until
        assert end > at or until == at
        assert end == until or end in {r.next_id for r in held}
