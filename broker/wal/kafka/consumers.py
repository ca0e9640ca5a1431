"""A few consumers for all readers of a process, each at the place where its last read ended."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from broker.wal.kafka.confluent_settings import READ_S
from broker.wal.kafka.partition import Unavailable
from broker.wal.kafka.waiting_task import answered, raise_if_cancelled

CONSUMERS_MAX: Final = 6
"""Each has some threads and up to 8 MiB of what it fetched ahead."""
_LOOK_S: Final = 0.5
_LOOKS: Final = int(READ_S / _LOOK_S)

Place = tuple[str, int]


class PlacedConsumer:
    """A consumer, and the topic and offset that it gives next; None: unknown."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.place: Place | None = None
        self.left: set[str] = set()
        """Topics that were left while it was lent."""
        self._known: set[str] = set()

    def go_to(self, place: Place) -> None:
        """Give what stands there next. Raises Unavailable."""
        if self.place == place:
            return
        topic, offset = place
        try:
            if topic not in self._known:
                # Otherwise it looks for the leader of a new topic once in a second only.
                answered(lambda wait_s: self.consumer.list_topics(topic, timeout=wait_s))
                self._known.add(topic)
            self.consumer.assign([TopicPartition(topic, 0, offset)])
        except KafkaException as error:
            raise Unavailable(f"topic {topic} cannot be read: {error}") from error
        self.place = place

    def rest(self) -> None:
        """Fetch nothing ahead any more."""
        self.place = None
        self.consumer.unassign()


class Consumers:
    """Lends consumers to threads, one to each at a time; makes them when they are needed."""

    def __init__(
        self,
        properties: Mapping[str, str | int | bool],
        make: Callable[..., Consumer] = Consumer,
        limit: int = CONSUMERS_MAX,
    ) -> None:
        self._properties, self._make, self._limit = properties, make, limit
        self._changed = threading.Condition()
        self._idle: list[PlacedConsumer] = []
        self._lent: list[PlacedConsumer] = []
        self._made = 0
        self._closed = False

    @contextmanager
    def lend(self, place: Place | None = None) -> Iterator[PlacedConsumer]:
        """The one at this place, if there is one. Raises Unavailable when none becomes free."""
        lent = self._take(place)
        try:
            yield lent
        except BaseException:
            lent.place = None  # whatever it was doing, the next one begins anew
            raise
        finally:
            self._put_back(lent)

    def leave(self, topic: str) -> None:
        """Begin anew there: the topic has a new owner, or was made anew."""
        with self._changed:
            for each in self._lent:
                each.left.add(topic)
            for each in self._idle:
                if each.place is not None and each.place[0] == topic:
                    each.place = None

    def close(self) -> None:
        """Close those that are idle, and the others when they come back. Idempotent."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for each in idle:
            each.consumer.close()

    def _take(self, place: Place | None) -> PlacedConsumer:
        with self._changed:
            free = self._wait_for_one()
            if self._closed:
                raise Unavailable("the log's connection to Kafka is closed")
            if not free:
                raise Unavailable(f"all {self._limit} readers of Kafka were busy for {READ_S:g} s")
            found = next((it for it in self._idle if it.place == place), None)
            if found is None and self._made >= self._limit:
                found = self._idle[0]  # idle for the longest time
            if found is not None:
                self._idle.remove(found)
                self._lent.append(found)
                return found
            self._made += 1
        try:
            made = PlacedConsumer(self._make(dict(self._properties)))
        except BaseException as error:
            with self._changed:
                self._made -= 1
                self._changed.notify()
            if isinstance(error, KafkaException):
                raise Unavailable(f"cannot make a consumer: {error}") from error
            raise
        with self._changed:
            self._lent.append(made)
        return made

    def _wait_for_one(self) -> bool:
        for _ in range(_LOOKS):
            if self._changed.wait_for(self._is_free, _LOOK_S):
                return True
            raise_if_cancelled()
        return False

    def _is_free(self) -> bool:
        return self._closed or bool(self._idle) or self._made < self._limit

    def _put_back(self, lent: PlacedConsumer) -> None:
        with self._changed:
            self._lent.remove(lent)
            if lent.place is not None and lent.place[0] in lent.left:
                lent.place = None
            lent.left.clear()
            if not self._closed:
                self._idle.append(lent)
                self._changed.notify()
                return
        lent.consumer.close()
