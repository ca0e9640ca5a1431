"""What a partition asks Kafka, and what it asks again, as the client remembers a dead leader."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from typing import Any

import anyio
import pytest
from anyio import to_thread
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from broker.wal.kafka.confluent_partition import ConfluentPartition
from broker.wal.kafka.consumers import Consumers
from broker.wal.kafka.fetched import Fetched
from broker.wal.kafka.partition import AnswerLost, Unavailable

NOBODY: dict[str, str | int | bool] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


class ForgetfulConsumer:
    """As librdkafka's: it asks the old leader until it has looked who leads now."""

    def __init__(self, *, learns: bool) -> None:
        self._learns, self._knows = learns, False
        self.asked = 0

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        self.asked += 1
        if not self._knows:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 3, 7

    def list_topics(self, *_: Any) -> None:
        self._knows = self._learns

    def close(self) -> None:
        pass


@pytest.fixture
def consumer(request: pytest.FixtureRequest) -> ForgetfulConsumer:
    return ForgetfulConsumer(learns=request.param)


@pytest.fixture
def partition(consumer: ForgetfulConsumer) -> Iterator[ConfluentPartition]:
    consumers = Consumers({}, lambda _: consumer)  # type: ignore[arg-type, return-value]
    with (
        closing(consumers),
        closing(ConfluentPartition("t", NOBODY, consumers, Fetched(), lambda *_: None)) as made,
    ):
        yield made


@pytest.mark.parametrize("consumer", [True], indirect=True)
def test_the_ends_are_asked_of_the_new_leader_when_the_old_one_does_not_answer(
    partition: ConfluentPartition, consumer: ForgetfulConsumer
) -> None:
    assert partition.ends() == (3, 7)
    assert consumer.asked == 3


@pytest.mark.parametrize("consumer", [False], indirect=True)
def test_a_topic_without_an_answering_leader_is_unavailable_after_some_asking(
    partition: ConfluentPartition, consumer: ForgetfulConsumer
) -> None:
    with pytest.raises(Unavailable, match="topic t: Kafka did not answer in 15 s"):
        partition.ends()
    assert consumer.asked == 5


@pytest.mark.parametrize("consumer", [False], indirect=True)
def test_an_append_that_waits_for_kafka_ends_when_it_is_interrupted(
    partition: ConfluentPartition,
) -> None:
    with ThreadPoolExecutor() as threads:
        appended = threads.submit(partition.append, b"k", b"v", 0)
        done, _ = wait([appended], timeout=0.1)
        assert not done
        # Again and again: an interruption before the append has begun has no effect.
        for _ in range(40):
            partition.interrupt()
            done, _ = wait([appended], timeout=0.1)
            if done:
                break
        with pytest.raises(AnswerLost, match="topic t: Kafka lost the group, or its answer"):
            appended.result(0)


class Stored:
    """What a consumer gives of a topic."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"%d" % self._offset


class DenseConsumer:
    """Gives a record for each offset below `end`, and counts; nothing from there on."""

    def __init__(self, end: int) -> None:
        self.end, self.at = end, 0
        self.gave = self.placed = 0
        self.away = False
        self.waits = threading.Event()

    def list_topics(self, *_: Any, timeout: float = 0) -> None:
        if self.away:
            self.waits.set()
            threading.Event().wait(timeout / 10)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> None:
        self.list_topics(timeout=timeout)

    def assign(self, places: list[TopicPartition]) -> None:
        self.placed += 1
        self.at = places[0].offset

    def unassign(self) -> None:
        pass

    def poll(self, wait_s: float) -> Stored | None:
        if self.at >= self.end:
            self.waits.set()
            threading.Event().wait(wait_s)
            return None
        self.at += 1
        self.gave += 1
        return Stored(self.at - 1)

    def close(self) -> None:
        pass


def of_a_topic(consumer: DenseConsumer) -> ConfluentPartition:
    consumers = Consumers({}, lambda _: consumer, limit=1)  # type: ignore[arg-type, return-value]
    return ConfluentPartition("t", NOBODY, consumers, Fetched(), lambda *_: None)


def test_a_hundred_readers_of_one_part_fetch_it_once() -> None:
    consumer = DenseConsumer(1000)
    with closing(of_a_topic(consumer)) as partition:
        at = list(range(100))
        while min(at) < 1000:
            for reader, offset in enumerate(at):
                if offset < 1000:
                    found = partition.read(offset, 1000, 40)
                    assert [it.value for it in found] == [b"%d" % it.offset for it in found]
                    at[reader] = found[-1].offset + 1
    assert consumer.gave == 1000
    assert consumer.placed <= 2


def test_what_was_given_back_is_not_given_from_memory() -> None:
    consumer = DenseConsumer(10)
    with closing(of_a_topic(consumer)) as partition:
        partition.read(0, 10, 1000)
        partition.delete_before(5)
        partition.read(5, 10, 1000)
        assert consumer.gave == 10
        partition.read(4, 5, 1000)
        assert consumer.gave == 11


@pytest.mark.parametrize("readers", [1, 2])
async def test_a_read_that_waits_for_kafka_or_for_a_turn_ends_with_its_task(readers: int) -> None:
    consumer = DenseConsumer(0)
    with closing(of_a_topic(consumer)) as partition, anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(readers):
                tasks.start_soon(to_thread.run_sync, partition.read, 0, 10, 1000)
            await to_thread.run_sync(consumer.waits.wait)
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("question", ["read", "offset_at"])
async def test_a_question_to_a_kafka_that_is_away_ends_with_its_task(question: str) -> None:
    consumer = DenseConsumer(0)
    consumer.away = True
    with closing(of_a_topic(consumer)) as partition, anyio.fail_after(10):
        asked = partial(partition.read, 0, 10, 1000) if question == "read" else None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(to_thread.run_sync, asked or partial(partition.offset_at, 7))
            await to_thread.run_sync(consumer.waits.wait)
            tasks.cancel_scope.cancel()


def test_a_question_that_kafka_never_answers_says_so_in_the_end() -> None:
    consumer = DenseConsumer(0)
    consumer.away = True
    with closing(of_a_topic(consumer)) as partition:
        with pytest.raises(Unavailable, match="topic t cannot be read"):
            partition.read(0, 10, 1000)
        with pytest.raises(Unavailable, match="topic t: "):
            partition.offset_at(7)


def test_a_new_owner_of_a_topic_is_given_nothing_from_memory() -> None:
    consumer, fetched = DenseConsumer(10), Fetched()
    consumers = Consumers({}, lambda _: consumer, limit=1)  # type: ignore[arg-type, return-value]
    for owner in (1, 2):
        with closing(
            ConfluentPartition("t", NOBODY, consumers, fetched, lambda *_: None)
        ) as partition:
            for _ in range(3):
                partition.read(0, 10, 1000)
        assert consumer.gave == 10 * owner


def test_a_consumer_that_was_lent_when_a_topic_got_a_new_owner_begins_anew() -> None:
    consumers = Consumers({}, lambda _: DenseConsumer(9), limit=1)  # type: ignore[arg-type, return-value]
    places = []
    for left in ("t", "another", ""):
        with consumers.lend() as lent:
            lent.place = ("t", 4)
            if left:
                consumers.leave(left)
        places.append(lent.place)
    assert places == [None, ("t", 4), ("t", 4)]
