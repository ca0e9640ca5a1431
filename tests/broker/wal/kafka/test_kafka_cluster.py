"""A log in a Kafka of three nodes: what dies, and what is acknowledged, unknown or refused then."""

import asyncio
from collections.abc import Sequence
from contextlib import closing

import pytest
from benchmark.baselines.kafka_server import KafkaNode
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from broker.model.ids import PChannelName, Term
from broker.model.record import Record
from broker.ports.wal import Log, NotStored, WriterFailed
from broker.wal.kafka.kafka_log import KafkaLog
from broker.wal.kafka.kafka_url import KafkaPlace
from broker.wal.kafka.kafka_wal import KafkaSizes, KafkaWal
from tests.broker.wal.some_records import record
from tests.contracts.wal_drivers import read_all
from tests.kafka_node import kafka_nodes

__all__ = ["kafka_nodes"]
CHANNEL = PChannelName("c")
SMALL = KafkaSizes(segment_bytes=8192, index_spacing_bytes=512, record_bytes_max=1 << 20)
TERMS = 200


def place_on(nodes: Sequence[KafkaNode], prefix: str) -> KafkaPlace:
    return KafkaPlace(tuple(it.address for it in nodes), prefix, 3, 2, syncs=False)


def impatient(wal: KafkaWal) -> None:
    """It waits for an answer for a second and a half, and not for half a minute."""
    wal._clients.common["message.timeout.ms"] = 1500  # type: ignore[index]
    wal._clients.common["request.timeout.ms"] = 1000  # type: ignore[index]


def leader_of(nodes: Sequence[KafkaNode], topic: str) -> KafkaNode:
    admin = AdminClient({"bootstrap.servers": ",".join(it.address for it in nodes)})
    [answer] = admin.describe_topics(TopicCollection([topic])).values()
    leader = answer.result(30).partitions[0].leader
    return next(it for it in nodes if it.seat.number == leader.id)


async def opened(wal: KafkaWal, above: int) -> KafkaLog:
    """As soon as Kafka, which is coming back, lets it."""
    for term in range(above + 1, above + TERMS):
        try:
            return await wal.open(CHANNEL, Term(term))
        except WriterFailed:
            continue
    raise AssertionError("Kafka does not come back")


async def becomes_writable(wal: KafkaWal) -> bool:
    """When it has asked a node that is alive."""
    for _ in range(TERMS):
        if not await wal.why_unwritable(CHANNEL):
            return True
    return False


async def append_to(log: Log, groups: int) -> list[Record]:
    done = list[Record]()
    for _ in range(groups):
        made = record(log.bounds().next_id, term=log.term, size=200)
        await log.append([made])
        done.append(made)
    return done


async def test_appends_go_on_when_the_leader_of_a_topic_is_killed(
    kafka_nodes: list[KafkaNode],
) -> None:
    place = place_on(kafka_nodes, "leader")
    with closing(KafkaWal(place, "c", SMALL)) as wal:
        log = await wal.open(CHANNEL, Term(1))
        done = await append_to(log, 20)
        leader = await asyncio.to_thread(leader_of, kafka_nodes, place.topic(CHANNEL))
        appending = asyncio.gather(append_to(log, 200))
        leader.kill()
        try:
            # Nobody is told: the client finds the new leader within its deadline.
            done += (await appending)[0]
            assert wal.warnings() == []
            assert await becomes_writable(wal)
            await log.close()
            log = await wal.open(CHANNEL, Term(2))
            assert await read_all(log) == done
            await log.close()
        finally:
            await asyncio.to_thread(leader.start)


async def test_a_topic_is_made_after_the_death_of_the_broker_that_the_client_asked_before(
    kafka_nodes: list[KafkaNode],
) -> None:
    with closing(KafkaWal(place_on(kafka_nodes, "new"), "c", SMALL)) as wal:
        log = await opened(wal, 0)  # this client knows whom to ask for topics
        asked = wal._topics._admin.list_topics(timeout=30).controller_id
        dead = next(it for it in kafka_nodes if it.seat.number == asked)
        dead.kill()
        try:
            other = await wal.open(PChannelName("made-later"), Term(1))
            await append_to(other, 5)
            await other.close()
        finally:
            await asyncio.to_thread(dead.start)
        await log.close()


async def test_without_a_quorum_the_outcome_is_unknown_and_all_acknowledged_comes_back(
    kafka_nodes: list[KafkaNode],
) -> None:
    with closing(KafkaWal(place_on(kafka_nodes, "quorum"), "c", SMALL)) as wal:
        impatient(wal)
        log = await opened(wal, 0)
        done = await append_to(log, 20)
        for node in kafka_nodes[:2]:
            node.kill()
        try:
            with pytest.raises(WriterFailed) as caught:
                await append_to(log, 1)
            assert not isinstance(caught.value, NotStored)
            assert "no answer of Kafka in" in wal.warnings()[0]
            assert "too few copies are in sync" in wal.warnings()[0]
            # Nothing is asked of `why_unwritable` yet: no quorum notes that two copies are gone.
            kafka_nodes[2].kill()
            assert await wal.why_unwritable(CHANNEL)
        finally:
            for node in kafka_nodes:
                if not node.alive:
                    node.launch()
            for node in kafka_nodes:
                await asyncio.to_thread(node.wait)
        await log.close()
        log = await opened(wal, log.term)
        assert await becomes_writable(wal)
        assert wal.warnings() == []
        held = await read_all(log)
        assert held[: len(done)] == done
        assert len(held) <= len(done) + 1, "the open one may have been stored"
        await log.close()


async def test_a_quota_makes_appends_slow_and_one_that_is_too_slow_says_so(
    kafka_nodes: list[KafkaNode],
) -> None:
    place = place_on(kafka_nodes, "quota")
    with closing(KafkaWal(place, "c", SMALL)) as wal:
        impatient(wal)
        log = await opened(wal, 0)
        done = await append_to(log, 5)
        limit_producer(kafka_nodes[0], place, "producer_byte_rate=100")
        try:
            with pytest.raises(WriterFailed, match="a quota delays us") as caught:
                done += await append_to(log, 100)
            assert not isinstance(caught.value, NotStored)
            assert "a quota delays us" in wal.warnings()[0]
        finally:
            limit_producer(kafka_nodes[0], place, None)
        await log.close()
        log = await opened(wal, log.term)
        assert (await read_all(log))[: len(done)] == done
        assert wal.warnings() == []
        await log.close()


def limit_producer(node: KafkaNode, place: KafkaPlace, limit: str | None) -> None:
    change = ["--add-config", limit] if limit else ["--delete-config", "producer_byte_rate"]
    client = ["--entity-type", "clients", "--entity-name", f"tidemark-{place.prefix}"]
    node.tool("kafka.admin.ConfigCommand", "--alter", *client, *change)
