"""The task that waits for the work of a thread: its cancellation ends the work."""

from collections.abc import Callable
from typing import Final, TypeVar

from anyio import from_thread
from confluent_kafka import KafkaException

from broker.wal.kafka.confluent_settings import READ_S
from broker.wal.kafka.kafka_errors import AWAY, failure_of

T = TypeVar("T")
_ASK_S: Final = 3.0
_ASKS: Final = int(READ_S / _ASK_S)


def raise_if_cancelled() -> None:
    """Raise its cancellation, so that a read of Kafka holds up no actor that is to stop.

    A log's own thread has no such task: there this does nothing.
    """
    try:
        from_thread.check_cancelled()
    except RuntimeError:
        pass


def answered(ask: Callable[[float], T]) -> T:
    """What Kafka answers to a question that is given its time in seconds; it is asked a few times.

    Raises KafkaException, after READ_S for want of an answer.
    """
    for _ in range(_ASKS - 1):
        raise_if_cancelled()
        try:
            return ask(_ASK_S)
        except KafkaException as error:
            if failure_of(error).name not in AWAY:
                raise
    raise_if_cancelled()
    return ask(_ASK_S)
