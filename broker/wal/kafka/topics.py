"""Makes topics as the log needs them, and refuses those that are otherwise."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from broker.ports.wal import Unsuitable
from broker.wal.kafka.confluent_settings import MESSAGE_BYTES_MAX, READ_S, BadClientFile
from broker.wal.kafka.kafka_errors import AWAY, MISSING, Failure, failure_of, result_of
from broker.wal.kafka.kafka_url import KafkaPlace
from broker.wal.kafka.partition import Unavailable
from broker.wal.kafka.topic_ids import TopicIds

T = TypeVar("T")
TopicDescription = Any
"""Of the client, which does not export the types of its answers in all releases."""
FOREVER: Final = "-1"
AT_ANY_TIME: Final = str((1 << 63) - 1)
_KEPT: Final = {
    # Retention is ours alone: the topic's own would remove what somebody still needs.
    "cleanup.policy": "delete",
    "retention.ms": FOREVER,
    "retention.bytes": FOREVER,
    # A copy that lags behind must never become the leader: it would take back what was promised.
    "unclean.leader.election.enable": "false",
    # Ticks are the cluster's time, whatever the clock of a Kafka broker shows.
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": AT_ANY_TIME,
    "message.timestamp.after.max.ms": AT_ANY_TIME,
}
_WAIT_S: Final = 2 * READ_S
"""The client keeps its own deadline; this is against waiting without end."""
_TRIES_S: Final = (READ_S / 6, READ_S / 6, 2 * READ_S / 3)
"""Several: for some seconds Kafka itself counts a broker that has died as alive."""
_LEARN_S: Final = READ_S / 12
"""To ask for the brokers between two tries."""
_OF_ANOTHER: Final = {*AWAY, "NOT_LEADER_FOR_PARTITION", "NOT_CONTROLLER"} - {"_NO_ANSWER"}
"""Errors that another broker might not answer with."""
_LEADER_TRIES: Final = 50
_LEADER_PAUSE_S: Final = 0.1


class Topics:
    """The topics of one place. Every call blocks its thread, for about READ_S at most."""

    def __init__(
        self,
        place: KafkaPlace,
        properties: Mapping[str, str | int | bool],
        record_bytes_max: int,
        ids: TopicIds,
    ) -> None:
        self._place, self._record_bytes_max, self._ids = place, record_bytes_max, ids
        try:
            self._admin = AdminClient(dict(properties))
        except KafkaException as error:
            raise BadClientFile(failure_of(error).text) from error
        self._pause = threading.Event()

    def ready(self, topic: str, known: str) -> tuple[int, str]:
        """Make the topic if it is missing and check it; the bytes of a message, and its id.

        `known`: the id that it had before, or empty. Raises Unsuitable, and Unavailable while
        Kafka does not answer or it has no leader.
        """
        found = self._find(topic)
        if found is None and known:
            raise Unsuitable(
                f"topic {topic} is missing, and it held the log: it was deleted, or this is another"
                f" Kafka cluster; to begin with an empty one, remove {self._ids.place(topic)}"
            )
        if found is None:
            self._make(topic)
        for _ in range(_LEADER_TRIES):
            if found is not None and found.partitions and _has_leader(found):
                break
            self._pause.wait(_LEADER_PAUSE_S)
            found = self._find(topic)
        else:
            raise Unavailable(f"topic {topic}: its partition has no leader")
        self._check(found)
        takes = self._check_settings(topic)
        topic_id = str(found.topic_id)
        self.check_id(topic, known or topic_id, topic_id)
        return takes, topic_id

    def trouble(self, topic: str) -> str:
        """Why the topic takes no appends now; empty: it does. Raises Unavailable."""
        found = self._find(topic)
        if found is None:
            return f"topic {topic} is missing"
        if not found.partitions or not _has_leader(found):
            return f"topic {topic}: its partition has no leader"
        copies = len(found.partitions[0].isr)
        if copies < self._place.min_isr:
            return f"topic {topic} has {copies} copies in sync and needs {self._place.min_isr}"
        return ""

    def reach(self) -> None:
        """Raise Unavailable unless Kafka answers."""
        answer = self._answer(
            lambda within_s: self._admin.describe_cluster(request_timeout=within_s)
        )
        if isinstance(answer, Failure):
            raise Unavailable(f"{self._place.shown}: {answer.text}")

    def delete_before(self, topic: str, offset: int) -> None:
        """Delete the records below an offset. Raises Unavailable."""
        place = TopicPartition(topic, 0, offset)
        answer = self._answer(
            lambda within_s: self._admin.delete_records([place], request_timeout=within_s)[place]
        )
        # Out of range: the topic begins behind it already.
        if isinstance(answer, Failure) and answer.name != "OFFSET_OUT_OF_RANGE":
            raise Unavailable(f"topic {topic}: {answer.text}")

    def _find(self, topic: str) -> TopicDescription | None:
        one = TopicCollection([topic])
        answer = self._answer(
            lambda within_s: self._admin.describe_topics(one, request_timeout=within_s)[topic]
        )
        if not isinstance(answer, Failure):
            return answer
        if answer.name in MISSING:
            return None
        if answer.name == "TOPIC_AUTHORIZATION_FAILED":
            raise Unsuitable(f"topic {topic}: this user may not describe it")
        raise Unavailable(f"topic {topic}: {answer.text}")

    def _make(self, topic: str) -> None:
        wanted = {
            **_KEPT,
            "min.insync.replicas": str(self._place.min_isr),
            "max.message.bytes": str(max(MESSAGE_BYTES_MAX, self._record_bytes_max)),
            "compression.type": "producer",
        }
        if self._place.syncs:
            wanted["flush.messages"] = "1"
        new = NewTopic(topic, 1, self._place.replication, config=wanted)
        answer = self._answer(
            lambda within_s: self._admin.create_topics([new], request_timeout=within_s)[topic]
        )
        if not isinstance(answer, Failure) or answer.name == "TOPIC_ALREADY_EXISTS":
            return
        told = f"topic {topic} cannot be made: {answer.text}"
        if answer.name == "INVALID_REPLICATION_FACTOR":
            told = (
                f"{told.removesuffix('.')}; it was to have replication={self._place.replication}"
                " copies: start the brokers that are away or, if there are no more, write"
                " ?replication=N in the URL of the log, with N at most their number"
            )
        raise Unavailable(told) if answer.passes or answer.name in AWAY else Unsuitable(told)

    def _answer(self, ask: Callable[[float], Future[T]]) -> T | Failure:
        """The answer to a question, which is asked again if nobody answers."""
        for within_s in _TRIES_S[:-1]:
            answer = result_of(ask(within_s), _WAIT_S)
            if not isinstance(answer, Failure) or answer.name not in _OF_ANOTHER:
                return answer
            # The client asks the broker that it takes for the controller, or for the leader, also
            # after its death, until it learns of another one.
            with suppress(KafkaException):
                self._admin.list_topics(timeout=_LEARN_S)
        return result_of(ask(_TRIES_S[-1]), _WAIT_S)

    def check_id(self, topic: str, known: str, found: str) -> None:
        """Raise Unsuitable unless the topic is the one that held the log."""
        if known != found:
            raise Unsuitable(
                f"topic {topic} was deleted and made anew: its id is {found}, and the log was in"
                f" {known}; to go on with what it holds now, remove {self._ids.place(topic)}"
            )

    def _check(self, found: TopicDescription) -> None:
        partitions = len(found.partitions)
        if partitions != 1:
            raise Unsuitable(
                f"topic {found.name} has {partitions} partitions; a log needs one, so that it has"
                " one order: use another prefix, or delete the topic if nothing in it is needed"
            )
        copies = len(found.partitions[0].replicas)
        if copies < self._place.replication:
            raise Unsuitable(
                f"topic {found.name} has {copies} copies, and replication="
                f"{self._place.replication} is asked for; add copies with"
                " kafka-reassign-partitions, or ask for fewer"
            )

    def _check_settings(self, topic: str) -> int:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        answer = self._answer(
            lambda within_s: self._admin.describe_configs([resource], request_timeout=within_s)[
                resource
            ]
        )
        if isinstance(answer, Failure):
            raise Unavailable(f"topic {topic}: {answer.text}")
        found = {name: it.value for name, it in answer.items()}
        wrong = [f"{it}={found.get(it)}" for it, value in _KEPT.items() if found.get(it) != value]
        if int(found["min.insync.replicas"]) < self._place.min_isr:
            wrong.append(f"min.insync.replicas={found['min.insync.replicas']}")
        if self._place.syncs and found["flush.messages"] != "1":
            wrong.append(f"flush.messages={found['flush.messages']}")
        takes = int(found["max.message.bytes"])
        if takes < self._record_bytes_max:
            wrong.append(f"max.message.bytes={takes}")
        if wrong:
            right = {
                **_KEPT,
                "min.insync.replicas": str(self._place.min_isr),
                "max.message.bytes": f"{self._record_bytes_max} or more",
                "flush.messages": "1",
            }
            remedy = ", ".join(f"{it}={right[it]}" for it in (each.split("=")[0] for each in wrong))
            raise Unsuitable(
                f"topic {topic} has {', '.join(wrong)}; the log needs {remedy}: set it with"
                " kafka-configs"
            )
        return takes


def _has_leader(found: TopicDescription) -> bool:
    leader = found.partitions[0].leader
    return leader is not None and bool(leader.id >= 0)
