"""What is told of a topic that cannot be made, or cannot be used yet."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from broker.ports.wal import Unsuitable
from broker.wal.kafka.kafka_url import kafka_place
from broker.wal.kafka.partition import Unavailable
from broker.wal.kafka.topic_ids import NoTopicIds
from broker.wal.kafka.topics import Topics

TOPIC = "p.c"
TOO_FEW = (
    "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be"
    " reached because only 1 broker(s) are registered."
)


class AnsweringAdmin:
    """Gives the same answer to every question about the topic; an exception is raised."""

    described: Any
    made: Any = None

    def __init__(self, _properties: object) -> None:
        pass

    def describe_topics(self, *_: Any, **__: Any) -> dict[str, Future[Any]]:
        return {TOPIC: _answer(self.described)}

    def create_topics(self, *_: Any, **__: Any) -> dict[str, Future[Any]]:
        return {TOPIC: _answer(self.made)}


def _answer(given: Any) -> Future[Any]:
    answer = Future[Any]()
    if isinstance(given, Exception):
        answer.set_exception(given)
    else:
        answer.set_result(given)
    return answer


def failure(name: int, text: str) -> KafkaException:
    return KafkaException(KafkaError(name, text))


def topics(monkeypatch: pytest.MonkeyPatch, described: Any, made: Any = None) -> Topics:
    answers = {"described": described, "made": made}
    admin = type("Admin", (AnsweringAdmin,), answers)
    monkeypatch.setattr("broker.wal.kafka.topics.AdminClient", admin)
    monkeypatch.setattr("broker.wal.kafka.topics._LEADER_PAUSE_S", 0.0)
    return Topics(kafka_place("kafka://a/p"), {}, 1 << 20, NoTopicIds())


MISSING = failure(KafkaError.UNKNOWN_TOPIC_OR_PART, "unknown")


def test_too_few_brokers_for_the_copies_are_told_with_what_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = failure(KafkaError.INVALID_REPLICATION_FACTOR, TOO_FEW)
    with pytest.raises(Unsuitable) as caught:
        topics(monkeypatch, MISSING, refusal).ready(TOPIC, "")
    assert str(caught.value) == (
        f"topic p.c cannot be made: {TOO_FEW.removesuffix('.')}; it was to have replication=3"
        " copies: start the brokers that are away or, if there are no more, write ?replication=N in"
        " the URL of the log, with N at most their number"
    )


def test_another_refusal_of_a_new_topic_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = failure(KafkaError.POLICY_VIOLATION, "not here.")
    with pytest.raises(Unsuitable) as caught:
        topics(monkeypatch, MISSING, refusal).ready(TOPIC, "")
    assert str(caught.value) == "topic p.c cannot be made: not here."


@pytest.mark.parametrize("leader", [None, SimpleNamespace(id=-1)])
def test_a_topic_whose_partition_has_no_leader_is_told_so(
    monkeypatch: pytest.MonkeyPatch, leader: SimpleNamespace | None
) -> None:
    described = SimpleNamespace(name=TOPIC, partitions=[SimpleNamespace(leader=leader)])
    asked = topics(monkeypatch, described)
    with pytest.raises(Unavailable) as caught:
        asked.ready(TOPIC, "")
    told = "topic p.c: its partition has no leader"
    assert str(caught.value) == told
    assert asked.trouble(TOPIC) == told
