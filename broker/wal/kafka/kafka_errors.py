"""What errors of librdkafka mean for a log: refused for certain, lost, or away."""

from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoResult
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException

T = TypeVar("T")

REFUSALS: Final = {
    "MSG_SIZE_TOO_LARGE": "max.message.bytes of the topic is too small for this group",
    "RECORD_LIST_TOO_LARGE": "segment.bytes of the topic is too small for this group",
    "INVALID_TIMESTAMP": "the topic refuses the time of the group's tick; set its"
    " message.timestamp.before.max.ms and message.timestamp.after.max.ms to 9223372036854775807",
    "INVALID_RECORD": "the topic refuses the record: compacted topics and others with rules do",
    "POLICY_VIOLATION": "a policy of the Kafka cluster refuses it",
    "TOPIC_AUTHORIZATION_FAILED": "this user may not write to the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "this user may not write idempotently",
    "_QUEUE_FULL": "the client's queue is full",
    "_UNKNOWN_TOPIC": "the topic does not exist",
    "_UNKNOWN_PARTITION": "the topic has no partition 0",
    "_AUTHENTICATION": "Kafka does not know this user",
}
"""Errors after which a record is certainly not stored, and what they mean."""
TIMED_OUT: Final = "_MSG_TIMED_OUT"
GONE: Final = {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"}
"""The partition begins behind the offset, or ends before it."""
MISSING: Final = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "LEADER_NOT_AVAILABLE"}
"""The topic does not exist, or has just been made."""
LASTING: Final = {
    "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_AUTHORIZATION_FAILED",
}  # fmt: skip
"""A read does not wait until they pass."""
AWAY: Final = {"_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_NO_ANSWER"}


class Failure(NamedTuple):
    """An error by its name in librdkafka, with its text."""

    name: str
    text: str
    passes: bool = False


def failure_of(error: BaseException | KafkaError) -> Failure:
    """The failure that an exception or a message tells."""
    told = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if isinstance(told, KafkaError):
        return Failure(told.name(), told.str(), told.retriable())
    if isinstance(told, BufferError):
        return Failure("_QUEUE_FULL", str(told))
    if isinstance(told, NoResult):
        return Failure("_NO_ANSWER", "Kafka does not answer", passes=True)
    return Failure("_FAIL", str(told))


def result_of(answer: "Future[T]", within_s: float) -> T | Failure:
    """The answer to a question about the cluster, or why there is none."""
    try:
        return answer.result(within_s)
    except (KafkaException, NoResult) as error:
        return failure_of(error)
