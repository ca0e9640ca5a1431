"""Old owners that write to a topic in a real Kafka while new ones take over.

`--zombie-races N` says how often, with the planted bugs a third as often; ten thousand to show the
result. `-o log_cli=true -o log_cli_level=INFO` prints the counts.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import closing

import pytest
from benchmark.baselines.kafka_server import KafkaNode

from broker.model.ids import MessageId, PChannelName, Term
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.ports.wal import Corrupt, Fenced, Log
from broker.wal.kafka.kafka_url import KafkaPlace
from broker.wal.kafka.kafka_wal import KafkaSizes, KafkaWal
from tests.broker.wal.some_records import record
from tests.chaos.storm.sabotages import KAFKA_BUGS, SABOTAGES
from tests.kafka_node import kafka_node, new_place

__all__ = ["kafka_node"]
CHANNEL = PChannelName("c")
ASLEEP = 0.5
"""So many zombies wake up when the newer owner has acknowledged groups.

Half of those owners write nothing behind what the zombie writes then, so that it is the newest.
"""
SMALL = KafkaSizes(segment_bytes=8192, index_spacing_bytes=512, record_bytes_max=1 << 20)
GROUPS_MAX = 200
"""An owner stops by itself after so many, so that a race without a fence ends."""

counts = logging.getLogger("tests.broker.wal")


@pytest.fixture
def place(kafka_node: KafkaNode) -> KafkaPlace:
    return new_place(kafka_node)


@pytest.fixture
def zombie_races(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("zombie_races"))


async def test_no_race_with_a_zombie_in_kafka_loses_or_invents_a_record(
    place: KafkaPlace, zombie_races: int
) -> None:
    outcomes = await races_in(place, zombie_races)
    counts.info("%d races: %d groups lost, %d strange logs", zombie_races, *outcomes)
    assert outcomes == (0, 0)


@pytest.mark.parametrize("bug", KAFKA_BUGS)
async def test_zombies_show_a_planted_bug(
    bug: str, place: KafkaPlace, zombie_races: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the races would notice."""
    for patch in SABOTAGES[bug].patches():
        monkeypatch.setattr(*patch)
    races = max(10, zombie_races // 3)
    lost, strange = await races_in(place, races)
    counts.info("%s, %d races: %d groups lost, %d strange logs", bug, races, lost, strange)
    assert lost > 0
    assert strange > 0


async def races_in(place: KafkaPlace, races: int) -> tuple[int, int]:
    """In one topic, owner after owner, each against the one before: groups lost, and strange."""
    chance, lost, strange = random.Random(5), 0, 0
    with closing(KafkaWal(place, "c", SMALL)) as wal:
        log, told = await wal.open(CHANNEL, Term(1)), list[Record]()
        for race in range(races):
            begin = told[0].base_id if told else log.bounds().next_id
            warm_groups = 0 if told and chance.random() < ASLEEP else chance.randrange(0, 6)
            sleeps = chance.random() < ASLEEP
            zombie = Writing(log, warm_groups, sleeps=sleeps, told=told)
            writing = asyncio.gather(zombie.until_fenced())
            await zombie.warm.wait()
            newer = await wal.open(CHANNEL, Term(race + 2))
            held, told = await read_from(newer, begin), []
            if zombie.sleeps:
                # What it has in mind lands behind groups that were acknowledged meanwhile.
                told = [await append_one(newer) for _ in range(2)]
                zombie.awake.set()
            # It may have been told of more while the new owner read.
            await writing
            lost += sum(1 for it in zombie.told if it not in held)
            strange += held[: len(zombie.told)] != zombie.told
            strange += len(held) > len(zombie.told) + 1
            await log.close()
            log = newer
            if race % 20 == 19:
                first_id = await log.truncate(log.bounds().next_id, Retention(bytes_max=1), 0)
                told = [it for it in told if it.base_id >= first_id]
        await log.close()
    return lost, strange


class Writing:
    """An owner that writes; `warm` after some groups, `told` are those that it was promised.

    One that `sleeps` writes nothing from then on until it is `awake`.
    """

    def __init__(self, log: Log, warm_groups: int, *, sleeps: bool, told: Sequence[Record]) -> None:
        self.log, self.warm_groups, self.sleeps = log, warm_groups, sleeps
        self.warm, self.awake = asyncio.Event(), asyncio.Event()
        self.told = list(told)

    async def until_fenced(self) -> None:
        try:
            for number in range(GROUPS_MAX):
                if number >= self.warm_groups:
                    self.warm.set()
                    if self.sleeps:
                        await self.awake.wait()
                self.told.append(await append_one(self.log))
        except Fenced:
            pass


async def append_one(log: Log) -> Record:
    made = record(log.bounds().next_id, term=log.term, size=50)
    await log.append([made])
    return made


async def read_from(log: Log, at: MessageId) -> list[Record]:
    """What the log says it holds."""
    found, end = list[Record](), log.bounds().next_id
    while at < end:
        try:
            batch = await log.read(at, 1 << 20)
        except Corrupt:
            break  # what two owners wrote at once, as only the planted fault lets them
        if not batch or batch[-1].next_id <= at:
            break
        found += [it for it in batch if it.next_id <= end]
        at = MessageId(batch[-1].next_id)
    return found
