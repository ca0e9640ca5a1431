"""What a partition asks Kafka again, because the client remembers a leader that has died."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from broker.wal.kafka.confluent_partition import ConfluentPartition
from broker.wal.kafka.consumers import Consumers
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
        closing(ConfluentPartition("t", NOBODY, consumers, lambda *_: None)) as made,
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
