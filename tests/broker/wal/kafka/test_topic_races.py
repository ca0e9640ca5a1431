"""Old owners of a topic that write while new ones take over, at interleavings that seeds choose.

As `tests/contracts/test_zombie_races.py`, which says what must hold of each race.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from broker.model.ids import MessageId
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.ports.wal import Corrupt, Fenced, WriterFailed
from broker.wal.kafka.fetched import Fetched
from broker.wal.kafka.kafka_log import OpenedTopic
from broker.wal.kafka.kafka_wal import KafkaSizes
from tests.broker.wal.kafka.topic_in_memory import MemoryTopics
from tests.broker.wal.some_records import group
from tests.chaos.storm.sabotages import KAFKA_BUGS, SABOTAGES
from tests.contracts.turns import Turns

CHANNEL = "c"
TINY = KafkaSizes(segment_bytes=600, index_spacing_bytes=64, record_bytes_max=1 << 20)
GROUPS_MAX = 12


@dataclass(slots=True)
class Owner:
    """One process that believes in a term."""

    term: int
    truncates: bool = True
    opened: OpenedTopic | None = None
    found: list[Record] = field(default_factory=list)
    acknowledged: list[Record] = field(default_factory=list)

    def open(self, wal: MemoryTopics) -> None:
        try:
            self.opened = wal.open_now(CHANNEL, self.term)
            self.found = everything(self.opened)
        except Fenced:
            pass

    def append(self, records: int) -> bool:
        assert self.opened is not None
        first_id = self.opened.writer.view.next_id
        batch = group(first_id, records, term=self.term, messages=2, size=90)
        try:
            self.opened.writer.append(batch)
        except (Fenced, WriterFailed):
            return False
        self.acknowledged += batch
        return True

    def live(self, wal: MemoryTopics, chance: random.Random) -> None:
        if self.opened is None:
            self.open(wal)
        if self.opened is None:
            return
        for _ in range(chance.randint(1, GROUPS_MAX)):
            if not self.append(chance.randint(1, 4)):
                assert not self.append(1), "fenced is final"
                return
            if self.truncates and chance.random() < 0.2 and not self.truncate(chance):
                return

    def truncate(self, chance: random.Random) -> bool:
        """Its owner removes what it had found, or some of it."""
        assert self.opened is not None
        kept = chance.choice((1, 800, 1 << 30))
        before_id = self.opened.writer.view.next_id
        try:
            self.opened.writer.truncate(before_id, Retention(bytes_max=kept), 0)
        except (Fenced, WriterFailed):
            return False
        return True


def everything(opened: OpenedTopic) -> list[Record]:
    view, found = opened.writer.view, list[Record]()
    at = view.first_id
    while at < view.next_id:
        batch = opened.reader.read(at, 500)
        if not batch or batch[-1].next_id <= at:
            break  # what two owners wrote at once, as only the planted fault lets them
        found += batch
        at = MessageId(batch[-1].next_id)
    return found


def race(seed: int, *, truncates: bool = True) -> tuple[int, int, int]:
    """Steps, groups that were lost, and logs that are not what the newest owner knows."""
    chance, turns = random.Random(seed), Turns(seed)
    wal = MemoryTopics(TINY, step=lambda _what: turns.step())
    wal.fetched = Fetched()
    owners = [Owner(1, truncates)]
    owners[0].open(wal)
    for _ in range(chance.randint(0, 3)):
        owners[0].append(chance.randint(1, 3))
    owners += [Owner(2 + number, truncates) for number in range(chance.choice((1, 1, 2)))]
    turns.run({f"owner-{it.term}": life(it, wal, chance.getrandbits(32)) for it in owners})
    lost, strange = checked(owners, wal)
    return turns.steps, lost, strange


def life(owner: Owner, wal: MemoryTopics, seed: int) -> Callable[[], None]:
    return lambda: owner.live(wal, random.Random(seed))


def checked(owners: Sequence[Owner], wal: MemoryTopics) -> tuple[int, int]:
    last = Owner(owners[-1].term + 1)
    last.open(wal)
    assert last.opened is not None
    first_id, held = last.opened.writer.view.first_id, last.found
    newest = [owner for owner in owners if owner.opened is not None][-1]
    assert newest is owners[-1], "nobody has a newer term, so nobody can have fenced it"
    lost = [
        it
        for owner in owners
        for it in owner.acknowledged
        if it.base_id >= first_id and it not in held
    ]
    known = [it for it in newest.found + newest.acknowledged if it.base_id >= first_id]
    return len(lost), int(held != known)


@pytest.fixture
def races(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("races"))


def test_no_race_of_owners_of_a_topic_loses_or_invents_a_record(races: int) -> None:
    steps = 0
    for seed in range(races):
        took, lost, strange = race(seed)
        assert (lost, strange) == (0, 0), f"race {seed}"
        steps += took
    assert steps > races, "the owners did not meet"


@pytest.mark.parametrize("bug", KAFKA_BUGS)
def test_races_notice_a_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for patch in SABOTAGES[bug].patches():
        monkeypatch.setattr(*patch)
    assert sum(1 for number in range(60) if is_noticed(number)) > 10


def is_noticed(seed: int) -> bool:
    """Whether a race loses or invents records, or leaves a log with ids missing."""
    try:
        _, lost, strange = race(seed, truncates=False)
    except Corrupt:
        return True
    return lost + strange > 0
