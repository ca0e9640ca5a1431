"""Logs in a real Kafka: what a topic may be, what Kafka refuses, and what it loses when it dies."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmark.baselines.kafka_server import KafkaNode
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from broker.model.ids import MessageId, PChannelName, Term
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.ports.wal import (
    Corrupt,
    Log,
    NotStored,
    Unsuitable,
    WriterFailed,
)
from broker.wal.kafka.kafka_log import KafkaLog
from broker.wal.kafka.kafka_url import KafkaPlace
from broker.wal.kafka.kafka_wal import KafkaSizes, KafkaWal
from broker.wal.kafka.topic_ids import TopicIdFiles
from tests.broker.wal.some_records import group, record
from tests.contracts.wal_drivers import read_all
from tests.kafka_node import kafka_node, new_place

__all__ = ["kafka_node"]
CHANNEL = PChannelName("c")
LOOKS_MAX = APPENDS_MAX = 5000
SMALL = KafkaSizes(segment_bytes=8192, index_spacing_bytes=512, record_bytes_max=1 << 20)


@pytest.fixture
def place(kafka_node: KafkaNode) -> KafkaPlace:
    return new_place(kafka_node)


@pytest.fixture
def admin(place: KafkaPlace) -> AdminClient:
    return AdminClient({"bootstrap.servers": place.servers[0], "log_level": 0})


@pytest.fixture
def wal(place: KafkaPlace) -> Iterator[KafkaWal]:
    with closing(KafkaWal(place, "c", SMALL)) as made:
        yield made


def done(asked: dict[Any, Any]) -> None:
    for answer in asked.values():
        answer.result(30)


def alter(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    done(admin.incremental_alter_configs([resource]))
    # The controller answers before the broker, which is asked here, has heard of it.
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for _ in range(LOOKS_MAX):
        [answer] = admin.describe_configs([asked]).values()
        if answer.result(30)[name].value == value:
            return
    raise AssertionError(f"{topic} has not got {name}={value}")


async def append_until_refused(log: Log, base_id: int, taken: list[Record]) -> None:
    """The broker may take some before it heeds a smaller max.message.bytes."""
    for at in range(base_id, base_id + APPENDS_MAX):
        await log.append([record(at, size=5000)])
        taken.append(record(at, size=5000))


async def refused(wal: KafkaWal, term: int = 1) -> str:
    with pytest.raises(Unsuitable) as caught:
        await wal.open(CHANNEL, Term(term))
    assert wal.warnings(), "an operator is told, too"
    return str(caught.value)


async def test_a_topic_is_made_as_the_log_needs_it(wal: KafkaWal, place: KafkaPlace) -> None:
    place = replace(place, syncs=True)
    with closing(KafkaWal(place, "c", SMALL)) as synced:
        await (await synced.open(CHANNEL, Term(1))).close()
    admin = AdminClient({"bootstrap.servers": place.servers[0]})
    resource = ConfigResource(ConfigResource.Type.TOPIC, place.topic(CHANNEL))
    [answer] = admin.describe_configs([resource]).values()
    found = {name: it.value for name, it in answer.result(30).items()}
    assert found["retention.ms"] == found["retention.bytes"] == "-1"
    assert found["cleanup.policy"] == "delete"
    assert found["flush.messages"] == "1"
    assert found["unclean.leader.election.enable"] == "false"


async def test_a_topic_with_two_partitions_is_refused(
    wal: KafkaWal, place: KafkaPlace, admin: AdminClient
) -> None:
    done(admin.create_topics([NewTopic(place.topic(CHANNEL), 2, 1)]))
    assert "has 2 partitions; a log needs one" in await refused(wal)


async def test_a_topic_with_a_retention_of_its_own_is_refused(
    wal: KafkaWal, place: KafkaPlace, admin: AdminClient
) -> None:
    await (await wal.open(CHANNEL, Term(1))).close()
    assert wal.warnings() == []
    alter(admin, place.topic(CHANNEL), "retention.ms", "60000")
    assert "has retention.ms=60000; the log needs retention.ms=-1" in await refused(wal, 2)
    alter(admin, place.topic(CHANNEL), "retention.ms", "-1")
    await (await wal.open(CHANNEL, Term(3))).close()
    assert wal.warnings() == []


async def test_more_copies_than_there_are_brokers_cannot_be_had(place: KafkaPlace) -> None:
    wanted = replace(place, replication=3, min_isr=2)
    with closing(KafkaWal(wanted, "c", SMALL)) as wal:
        told = await refused(wal)
        assert "cannot be made" in told
        assert "to have replication=3 copies: start the brokers that are away" in told
    with closing(KafkaWal(place, "c", SMALL)) as wal:
        await (await wal.open(CHANNEL, Term(1))).close()
    with closing(KafkaWal(wanted, "c", SMALL)) as wal:
        assert "has 1 copies, and replication=3 is asked for" in await refused(wal, 2)


async def test_a_group_that_kafka_refuses_is_certainly_not_stored(
    wal: KafkaWal, place: KafkaPlace, admin: AdminClient
) -> None:
    log = await wal.open(CHANNEL, Term(1))
    await log.append(group(1, 2))
    alter(admin, place.topic(CHANNEL), "max.message.bytes", "1000")
    taken: list[Record] = []
    with pytest.raises(NotStored, match=r"max\.message\.bytes of the topic is too small"):
        await append_until_refused(log, 7, taken)
    [told] = wal.warnings()
    assert "which is not stored" in told
    await log.close()
    assert "has max.message.bytes=1000; the log needs" in await refused(wal, 2)
    alter(admin, place.topic(CHANNEL), "max.message.bytes", "2000000")
    log = await wal.open(CHANNEL, Term(3))
    assert await read_all(log) == [*group(1, 2), *taken]
    await log.close()


async def test_what_others_write_and_remove_is_told(
    wal: KafkaWal, place: KafkaPlace, admin: AdminClient
) -> None:
    log = await wal.open(CHANNEL, Term(1))
    for at in range(1, 300, 30):
        await log.append(group(at, 10, messages=3, size=300))
    topic = place.topic(CHANNEL)
    done(admin.delete_records([TopicPartition(topic, 0, 5)]))
    with pytest.raises(Corrupt, match="removed, not by Tidemark"):
        await log.read(MessageId(1), 100)
    stranger = Producer({"bootstrap.servers": place.servers[0]})
    stranger.produce(topic, b"foreign")
    assert stranger.flush(30) == 0
    with pytest.raises(WriterFailed, match="not written by Tidemark"):
        await log.append(group(301, 1))
    await log.close()
    with pytest.raises(Corrupt, match="not written by Tidemark"):
        await wal.open(CHANNEL, Term(2))


async def test_what_follows_the_recovered_log_is_read_when_kafka_has_removed_that_log(
    wal: KafkaWal,
) -> None:
    log = await wal.open(CHANNEL, Term(1))
    await log.append(group(1, 4))
    await log.close()
    log = await wal.open(CHANNEL, Term(2))
    await read_all(log)  # as recovery does
    behind = group(13, 4, term=2)
    await log.append(behind)
    assert await log.truncate(MessageId(13), Retention(bytes_max=1), 0) == 13
    assert await log.read(MessageId(13), 1 << 20) == behind
    await log.close()


async def test_a_topic_that_was_deleted_or_made_anew_is_told(
    place: KafkaPlace, admin: AdminClient, tmp_path: Path
) -> None:
    topic, ids = place.topic(CHANNEL), ForgettingIds(tmp_path / "ids")
    with closing(KafkaWal(place, "c", SMALL, ids=ids)) as wal:
        log = await wal.open(CHANNEL, Term(1))
        await log.append(group(1, 2))
        await log.close()
        done(admin.delete_topics([topic]))
        assert "is missing, and it held the log" in await refused(wal, 2)
        with closing(KafkaWal(place, "c", SMALL)) as other:
            await (await other.open(CHANNEL, Term(1))).close()
        assert "was deleted and made anew" in await refused(wal, 3)
        ids.forget(topic)
        log = await wal.open(CHANNEL, Term(4))
        assert log.bounds().next_id == 1
        await log.close()


class ForgettingIds(TopicIdFiles):
    def forget(self, topic: str) -> None:
        """As an operator who was told to."""
        Path(self.place(topic)).unlink()


async def test_a_killed_kafka_comes_back_with_all_that_was_acknowledged(
    kafka_node: KafkaNode, place: KafkaPlace, wal: KafkaWal
) -> None:
    def restart() -> None:
        kafka_node.kill()
        kafka_node.start()

    acknowledged = list[Record]()
    log = await wal.open(CHANNEL, Term(1))
    await append_on(log, acknowledged, 20)
    # A group in the air is sent again by the client, and stored once.
    await asyncio.gather(append_on(log, acknowledged, 200), asyncio.to_thread(restart))
    await log.close()
    log = await reopened(wal)
    held = await read_all(log)
    assert held[: len(acknowledged)] == acknowledged
    assert len(held) <= len(acknowledged) + 1, "one may be open, where Kafka took too long"
    await log.close()


async def reopened(wal: KafkaWal, above: int = 1) -> KafkaLog:
    """As soon as Kafka, which is starting or busy, lets it."""
    for term in range(above + 1, above + 100):
        try:
            return await wal.open(CHANNEL, Term(term))
        except WriterFailed:
            continue
    raise AssertionError("Kafka does not come back")


async def append_on(log: Log, acknowledged: list[Record], groups: int) -> None:
    for _ in range(groups):
        batch = [record(log.bounds().next_id, term=log.term, size=200)]
        try:
            await log.append(batch)
        except WriterFailed:
            return
        acknowledged += batch


async def test_a_kafka_that_does_not_come_back_leaves_the_outcome_open(
    kafka_node: KafkaNode, place: KafkaPlace
) -> None:
    with closing(KafkaWal(place, "c", SMALL)) as wal:
        wal._clients.common["message.timeout.ms"] = 1500  # type: ignore[index]
        log, acknowledged = await opened_with_some(wal)
        kafka_node.kill()
        try:
            with pytest.raises(WriterFailed, match="no answer of Kafka") as caught:
                await log.append([record(log.bounds().next_id, term=log.term)])
            assert not isinstance(caught.value, NotStored)
            assert "no answer of Kafka" in wal.warnings()[0]
            assert "kafka://" in await wal.why_unwritable(CHANNEL)
        finally:
            kafka_node.start()
        await log.close()
        log = await reopened(wal, log.term)
        assert await wal.why_unwritable(CHANNEL) == ""
        assert wal.warnings() == []
        held = [it for it in await read_all(log) if it.base_id >= acknowledged[0].base_id]
        assert held[: len(acknowledged)] == acknowledged
        await log.close()


async def opened_with_some(wal: KafkaWal) -> tuple[KafkaLog, list[Record]]:
    """A log and what it has acknowledged, at the first term at which Kafka answered in time."""
    term = 0
    for _ in range(100):
        log = await reopened(wal, term)
        first_id, term = log.bounds().next_id, int(log.term)
        batch = group(first_id, 2, term=term)
        try:
            await log.append(batch)
        except WriterFailed:
            await log.close()
        else:
            return log, batch
    raise AssertionError("Kafka answers nothing in time")
