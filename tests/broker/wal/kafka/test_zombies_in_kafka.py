"""Old owners that write to a topic in a real Kafka while new ones take over.

`--zombie-races N` says how often; ten thousand to show the result.
"""

import asyncio
import random
from contextlib import closing

import pytest
from benchmark.baselines.kafka_server import KafkaNode

from broker.model.ids import MessageId, PChannelName, Term
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.ports.wal import Corrupt, Fenced, Log
from broker.wal.kafka import topic_scan
from broker.wal.kafka.kafka_url import KafkaPlace
from broker.wal.kafka.kafka_wal import KafkaSizes, KafkaWal
from tests.broker.wal.some_records import record
from tests.kafka_node import kafka_node, new_place

__all__ = ["kafka_node"]
CHANNEL = PChannelName("c")
SMALL = KafkaSizes(segment_bytes=8192, index_spacing_bytes=512, record_bytes_max=1 << 20)
GROUPS_MAX = 200
"""An owner stops by itself after so many, so that a race without a fence ends."""


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
    assert outcomes == (0, 0)


async def test_without_the_look_into_gaps_zombies_acknowledge_what_is_lost(
    place: KafkaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the races would notice."""
    monkeypatch.setattr(topic_scan, "newer_term", lambda _term, _between: 0)
    lost, _ = await races_in(place, 10)
    assert lost > 0


async def races_in(place: KafkaPlace, races: int) -> tuple[int, int]:
    """In one topic, owner after owner, each against the one before: groups lost, and strange."""
    chance, lost, strange = random.Random(5), 0, 0
    with closing(KafkaWal(place, "c", SMALL)) as wal:
        log = await wal.open(CHANNEL, Term(1))
        for race in range(races):
            begin = log.bounds().next_id
            zombie = Writing(log, chance.randrange(0, 6))
            writing = asyncio.gather(zombie.until_fenced())
            await zombie.warm.wait()
            newer = await wal.open(CHANNEL, Term(race + 2))
            held = await read_from(newer, begin)
            # It may have been told of more while the new owner read.
            await writing
            lost += sum(1 for it in zombie.told if it not in held)
            strange += held[: len(zombie.told)] != zombie.told
            strange += len(held) > len(zombie.told) + 1
            await log.close()
            log = newer
            if race % 20 == 19:
                await log.truncate(log.bounds().next_id, Retention(bytes_max=1), 0)
        await log.close()
    return lost, strange


class Writing:
    """An owner that writes; `warm` after some groups, `told` are those that it was promised."""

    def __init__(self, log: Log, warm_groups: int) -> None:
        self.log, self.warm_groups = log, warm_groups
        self.warm = asyncio.Event()
        self.told: list[Record] = []

    async def until_fenced(self) -> None:
        try:
            for number in range(GROUPS_MAX):
                if number >= self.warm_groups:
                    self.warm.set()
                batch = [record(self.log.bounds().next_id, term=self.log.term, size=50)]
                await self.log.append(batch)
                self.told += batch
        except Fenced:
            pass


async def read_from(log: Log, at: MessageId) -> list[Record]:
    found = list[Record]()
    while at < log.bounds().next_id:
        try:
            batch = await log.read(at, 1 << 20)
        except Corrupt:
            break  # what two owners wrote at once, as only the planted fault lets them
        if not batch or batch[-1].next_id <= at:
            break
        found += batch
        at = MessageId(found[-1].next_id)
    return found
