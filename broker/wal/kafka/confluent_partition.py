"""A partition through librdkafka: a producer for its owner, consumers shared by all readers."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from broker.wal.kafka.confluent_settings import ANSWER_S, READ_S, VALUE_BYTES_MAX
from broker.wal.kafka.consumers import Consumers, PlacedConsumer
from broker.wal.kafka.entries import TopicRecord, damaged
from broker.wal.kafka.fetched import Fetched
from broker.wal.kafka.kafka_errors import GONE, LASTING, REFUSALS, TIMED_OUT, Failure, failure_of
from broker.wal.kafka.partition import AnswerLost, OffsetGone, Rejected, Unavailable
from broker.wal.kafka.waiting_task import answered, raise_if_cancelled

_SLICE_S: Final = 0.5
_SLICES: Final = int(READ_S / _SLICE_S)
_ASK_S: Final = 1.5
_ASKS: Final = int(READ_S / _ASK_S / 2)
_ANSWER_SLICES: Final = 4 * int(ANSWER_S / _SLICE_S)
"""librdkafka answers each append by its own deadline; this is against waiting without end."""

Delete = Callable[[str, int], None]
"""Deletes what a topic has below an offset; raises Unavailable."""


class ConfluentPartition:
    """Implements `Partition`. `value_bytes_max`: what the topic was found to take."""

    def __init__(
        self,
        topic: str,
        producer: Mapping[str, str | int | bool],
        consumers: Consumers,
        fetched: Fetched,
        delete: Delete,
        value_bytes_max: int = VALUE_BYTES_MAX,
    ) -> None:
        self._topic, self._consumers, self._delete = topic, consumers, delete
        self._fetched = fetched
        # Another owner may have truncated it meanwhile.
        fetched.forget(topic)
        consumers.leave(topic)
        self._value_bytes_max = value_bytes_max
        self._throttled_ms = 0
        try:
            self._producer: Producer | None = Producer(
                {**producer, "throttle_cb": self._note_throttling}
            )
        except KafkaException as error:
            raise Unavailable(f"topic {topic}: cannot make a producer: {error}") from error

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def value_bytes_max(self) -> int:
        return self._value_bytes_max

    @property
    def throttled_ms(self) -> int:
        """How long Kafka wants us to wait because of a quota, by its newest answer; 0: not."""
        return self._throttled_ms

    def append(self, key: bytes, value: bytes, stamp_ms: int) -> int:
        answers: list[Failure | Message] = []
        producer = self._open_producer()

        def delivered(error: Any, message: Message) -> None:
            answers.append(message if error is None else failure_of(error))

        try:
            producer.produce(self._topic, value, key, 0, on_delivery=delivered, timestamp=stamp_ms)
        except (KafkaException, BufferError) as error:
            raise self._lost(failure_of(error)) from error
        for _ in range(_ANSWER_SLICES):
            if answers:
                break
            producer.poll(_SLICE_S)
        if not answers:
            raise self._lost(Failure(TIMED_OUT, ""))
        answer = answers[0]
        if isinstance(answer, Failure):
            raise self._lost(answer)
        offset = answer.offset()
        if offset is None or offset < 0:
            # A retry of what was stored long ago: Kafka has it, and does not say where.
            raise AnswerLost(f"topic {self._topic}: stored, but Kafka does not say at which offset")
        return offset

    def read(self, offset: int, until: int, bytes_max: int) -> Sequence[TopicRecord]:
        found = self._fetched.find(self._topic, offset, until, bytes_max)
        if found:
            return found
        # Before a consumer is lent: what that one has fetched ahead is of this time.
        generation = self._fetched.generation(self._topic)
        with self._consumers.lend((self._topic, offset)) as lent:
            # Another reader may have fetched it while this one waited for its turn.
            found = self._fetched.find(self._topic, offset, until, bytes_max)
            if not found:
                found = self._fetch(lent, offset, until, bytes_max)
                self._fetched.put(self._topic, found, generation)
        return found

    def _fetch(
        self, lent: PlacedConsumer, offset: int, until: int, bytes_max: int
    ) -> list[TopicRecord]:
        lent.go_to((self._topic, offset))
        found, size = list[TopicRecord](), 0
        while offset < until and (not found or size < bytes_max):
            message = self._next(lent.consumer, offset)
            key, value = message.key(), message.value() or b""
            found.append(TopicRecord(offset, _bytes(key), _bytes(value) or b""))
            size += len(value)
            offset += 1
        if offset >= until:
            lent.rest()  # at its end a consumer would ask for more again and again
        else:
            lent.place = (self._topic, offset)
        return found

    def ends(self) -> tuple[int, int]:
        with self._consumers.lend() as lent:
            # The client asks for both at once, in any order. With an end that is older than the
            # begin, a truncation between them would look like lost records.
            low, _ = self._ends(lent.consumer)
            _, high = self._ends(lent.consumer)
        return low, high

    def _ends(self, consumer: Consumer) -> tuple[int, int]:
        place, failure = TopicPartition(self._topic, 0), ""
        for _ in range(_ASKS):
            raise_if_cancelled()
            try:
                ends = consumer.get_watermark_offsets(place, _ASK_S, cached=False)
            except KafkaException as error:
                failure, ends = f": {failure_of(error).text}", None
            if ends is not None:
                return ends
            # The client waits for the leader that it knows: for ever, if that has died.
            with suppress(KafkaException):
                consumer.list_topics(self._topic, _ASK_S)
        raise Unavailable(f"topic {self._topic}: Kafka did not answer in {READ_S:g} s{failure}")

    def offset_at(self, stamp_ms: int) -> int:
        with self._consumers.lend() as lent:
            try:
                [found] = answered(
                    lambda wait_s: lent.consumer.offsets_for_times(
                        [TopicPartition(self._topic, 0, stamp_ms)], wait_s
                    )
                )
            except KafkaException as error:
                raise self._unavailable(error) from error
        if found.error is not None:
            raise Unavailable(f"topic {self._topic}: {found.error}")
        return found.offset if found.offset >= 0 else self.ends()[1]

    def delete_before(self, offset: int) -> None:
        self._delete(self._topic, offset)
        self._fetched.forget(self._topic, below=offset)

    def interrupt(self) -> None:
        producer = self._producer
        if producer is not None:
            # The answer comes to the thread that polls for it.
            producer.purge(blocking=False)

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            # What waits was not acknowledged: it may come still, as after any lost answer.
            producer.purge()
            producer.poll(0)

    def _next(self, consumer: Consumer, offset: int) -> Message:
        """The message at an offset, where the consumer is."""
        for _ in range(_SLICES):
            message = consumer.poll(_SLICE_S)
            if message is None:
                raise_if_cancelled()
                continue
            error = message.error()
            if error is None:
                found = message.offset()
                if found != offset:
                    reason = f"offsets up to {found} are missing"
                    raise damaged(self._topic, offset, reason)
                return message
            failure = failure_of(error)
            if failure.name in GONE:
                raise OffsetGone(self._topic, offset)
            if failure.name in LASTING or error.fatal():
                raise Unavailable(f"topic {self._topic} cannot be read: {failure.text}")
        raise Unavailable(
            f"topic {self._topic}: Kafka gave nothing at offset {offset} in {READ_S:g} s"
        )

    def _open_producer(self) -> Producer:
        if self._producer is None:
            raise AnswerLost(f"topic {self._topic}: the producer is closed")
        return self._producer

    def _lost(self, failure: Failure) -> Rejected | AnswerLost:
        remedy = REFUSALS.get(failure.name)
        if remedy is not None:
            told = f"Kafka refuses the group, which is not stored ({failure.text})"
            return Rejected(f"topic {self._topic}: {told}: {remedy}")
        if failure.name == TIMED_OUT:
            why = "it is away, the topic has no leader, or too few copies are in sync"
            if self._throttled_ms:
                why = f"a quota delays us, by its last answer for {self._throttled_ms} ms"
            return AnswerLost(f"topic {self._topic}: no answer of Kafka in {ANSWER_S:g} s: {why}")
        told = f"Kafka lost the group, or its answer: {failure.text}"
        return AnswerLost(f"topic {self._topic}: {told}")

    def _unavailable(self, error: KafkaException) -> Unavailable:
        return Unavailable(f"topic {self._topic}: {failure_of(error).text}")

    def _note_throttling(self, event: object) -> None:
        self._throttled_ms = int(1000 * getattr(event, "throttle_time", 0))


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
