"""Old owners that write while new ones take over, at interleavings that seeds choose.

Of each race: whatever any owner was told is durable is in the log, in its place; and what the log
holds is exactly what the last owner found when it came, and wrote: nothing that a zombie completed
later. `--races N` says how many; ten thousand to show the result.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.testing import VirtualClock, run_seeded
from broker.model.ids import PChannelName, Term
from broker.model.record import Record
from broker.ports.wal import Fenced, Log, WriterFailed
from broker.wal.memory_wal import MemoryWal
from broker.wal.segmented import OsFiles, SegmentedWal
from broker.wal.segmented.segmented_wal import Opened
from tests.broker.wal.faulty_files import AtOnce, FaultyFiles
from tests.broker.wal.some_records import group
from tests.contracts.turns import SharedDisk, Turns
from tests.contracts.wal_drivers import read_all
from tests.crash.log_script import CHANNEL, TINY, everything

FIRST_TERM = 1
GROUPS_MAX = 12
REAL_DISK_SHARE = 20
"""One race of so many also on a real file system, which is slower."""


@dataclass(slots=True)
class Owner:
    """One process that believes in a term."""

    term: int
    opened: Opened | None = None
    found: list[Record] = field(default_factory=list)
    acknowledged: list[Record] = field(default_factory=list)
    fenced: bool = False

    def open(self, wal: SegmentedWal) -> None:
        try:
            self.opened = wal.open_now(CHANNEL, Term(self.term))
            self.found = list(everything(self.opened))
        except (Fenced, WriterFailed):
            self.fenced = True

    def append(self, records: int) -> bool:
        """False when it has learnt that it is none any more."""
        assert self.opened is not None
        first_id = self.opened.writer.bounds().next_id
        batch = group(first_id, records, term=self.term, messages=2, size=90)
        try:
            self.opened.writer.append(batch)
        except (Fenced, WriterFailed):
            self.fenced = True
            return False
        self.acknowledged += batch
        return True

    def live(self, wal: SegmentedWal, chance: random.Random) -> None:
        """Open unless it has, then write; a zombie tries once more after it was told."""
        if self.opened is None:
            self.open(wal)
        if self.opened is None:
            return
        for _ in range(chance.randint(1, GROUPS_MAX)):
            if not self.append(chance.randint(1, 4)):
                assert not self.append(1), "fenced is final"
                return


@pytest.fixture
def races(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("races"))


def race_on(files: Any, seed: int) -> Turns:
    chance, turns = random.Random(seed), Turns(seed)
    disk = SharedDisk(files, turns)

    def wal() -> SegmentedWal:
        salts = random.Random(chance.getrandbits(32))
        return SegmentedWal(disk, TINY, background=AtOnce(), salt=lambda: salts.getrandbits(32))

    old = Owner(FIRST_TERM)
    old.open(wal())
    for _ in range(chance.randint(0, 3)):
        old.append(chance.randint(1, 3))
    newer = [Owner(FIRST_TERM + 1 + number) for number in range(chance.choice((1, 1, 2)))]
    owners = [old, *newer]
    lives = {f"owner-{it.term}": _life(it, wal(), chance.getrandbits(32)) for it in owners}
    turns.run(lives)
    check(owners, wal())
    return turns


def _life(owner: Owner, wal: SegmentedWal, seed: int) -> Callable[[], None]:
    return lambda: owner.live(wal, random.Random(seed))


def check(owners: Sequence[Owner], wal: SegmentedWal) -> None:
    last = Owner(owners[-1].term + 1)
    last.open(wal)
    assert last.opened is not None
    holds = last.found
    for owner in owners:
        lost = [record for record in owner.acknowledged if record not in holds]
        assert not lost, f"term {owner.term} was told that these are durable: {lost}"
    newest = [owner for owner in owners if owner.opened is not None][-1]
    assert newest is owners[-1], "nobody has a newer term, so nobody can have fenced it"
    assert holds == newest.found + newest.acknowledged, "a zombie's write is read"
    for earlier, later in pairwise(holds):
        assert (earlier.next_id, earlier.term <= later.term) == (later.base_id, True)
    last.opened.writer.close()
    for owner in owners:
        if owner.opened is not None:
            owner.opened.writer.close()


def test_no_race_of_owners_loses_or_invents_a_record(races: int) -> None:
    steps = 0
    for seed in range(races):
        try:
            steps += race_on(FaultyFiles(seed=seed), seed).steps
        except BaseException as error:
            raise AssertionError(f"race {seed}: {error}") from error
    assert steps > races, "the owners did not meet"


def test_nor_does_a_race_on_a_real_file_system(tmp_path: Path, races: int) -> None:
    for seed in range(max(1, races // REAL_DISK_SHARE)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        race_on(OsFiles(folder), seed)


@pytest.mark.parametrize("chunk", range(4))
def test_nor_does_a_race_of_tasks_over_the_log_in_memory(chunk: int, races: int) -> None:
    for seed in range(chunk, races, 4):
        run_seeded(seed, partial(_race_in_memory, random.Random(seed)))


async def _race_in_memory(chance: random.Random) -> None:
    """The whole port, with tasks instead of threads: old and new append as the seed likes."""
    clock = VirtualClock()
    wal = MemoryWal(segment_bytes=4096, pause=lambda: clock.sleep(chance.random()))
    name = PChannelName("c")
    old, acknowledged = await wal.open(name, Term(1)), list[Record]()
    found: list[Record] = []
    wrote: list[Record] = []

    async def append(log: Log, told: list[Record]) -> None:
        try:
            for _ in range(chance.randint(1, GROUPS_MAX)):
                batch = group(log.bounds().next_id, 2, term=log.term)
                await log.append(batch)
                told += batch
        except Fenced:
            return

    async def take_over() -> None:
        await clock.sleep(chance.random() * GROUPS_MAX)
        new = await wal.open(name, Term(2))
        found.extend(await read_all(new))
        await append(new, wrote)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, old, acknowledged)
        tasks.start_soon(take_over)
    holds = await read_all(await wal.open(name, Term(3)))
    assert holds == found + wrote
    assert found[: len(acknowledged)] == acknowledged
