"""Measures Kafka: one topic of one partition and one replica, with the client of librdkafka."""

import importlib
import time
from typing import Any

from benchmark.baselines.disk import BODY
from benchmark.results.figures import RATE, quantiles

IN_FLIGHT = 1000
CALL_S_MAX = 30.0
FLUSH = {"flush.messages=1": {"flush.messages": "1"}, "default": {}}
"""Kafka's own default leaves the sync to the operating system: acknowledged is not on disk."""


class KafkaTopic:
    """Produces to one topic and consumes from it; `flush` is a key of FLUSH."""

    def __init__(self, address: str, flush: str) -> None:
        self._address = address
        self._topic = f"bench-{flush.replace('=', '-')}"
        self._config = FLUSH[flush]
        self._made = False
        self._held = 0

    def append(self, messages: int) -> dict[str, float]:
        """Produce with at most 1,000 messages without an answer; the client gathers batches."""
        producer = self._producer()
        waiting = Waiting()
        started = time.perf_counter()
        for _ in range(messages):
            while waiting.count >= IN_FLIGHT:
                if not producer.poll(CALL_S_MAX):
                    waiting.check(waiting.count)
            waiting.count += 1
            producer.produce(self._topic, BODY, on_delivery=waiting.answered)
            producer.poll(0)
        waiting.check(producer.flush(CALL_S_MAX))
        self._held += messages
        return {RATE: messages / (time.perf_counter() - started), "messages": messages}

    def one_by_one(self, times: int) -> dict[str, float]:
        """Produce one message after the other, each awaited."""
        producer = self._producer()
        waiting = Waiting()
        took_s = []
        for _ in range(times):
            started = time.perf_counter()
            producer.produce(self._topic, BODY, on_delivery=waiting.answered)
            waiting.check(producer.flush(CALL_S_MAX))
            took_s.append(time.perf_counter() - started)
        self._held += times
        return quantiles(took_s) | {"messages": times}

    def read(self, messages: int) -> dict[str, float]:
        """Consume from the start of the topic."""
        client = _client("confluent_kafka")
        if self._held < messages:
            self.append(messages)
        config = {"bootstrap.servers": self._address, "group.id": "bench"}
        consumer = client.Consumer({**config, "enable.auto.commit": False})
        consumer.assign([client.TopicPartition(self._topic, 0, 0)])
        seen, started = 0, time.perf_counter()
        try:
            while seen < messages:
                found = consumer.consume(min(IN_FLIGHT, messages - seen), CALL_S_MAX)
                failed = [str(it.error()) for it in found if it.error()]
                if failed or not found:
                    told = failed or f"{seen} of {messages} messages in {CALL_S_MAX} s"
                    raise RuntimeError(f"Kafka gives no messages: {told}")
                seen += len(found)
        finally:
            consumer.close()
        return {RATE: seen / (time.perf_counter() - started), "messages": seen}

    def _producer(self) -> Any:
        admin = _client("confluent_kafka.admin")
        server = {"bootstrap.servers": self._address}
        if not self._made:
            topic = admin.NewTopic(self._topic, 1, 1, config=self._config)
            # Held by a name: the call fails when its client is collected.
            creator = admin.AdminClient(server)
            creator.create_topics([topic])[self._topic].result(CALL_S_MAX)
            self._made = True
        return _client("confluent_kafka").Producer({**server, "acks": "all", "linger.ms": 0})


class Waiting:
    """Counts messages without an answer, and keeps the first error."""

    def __init__(self) -> None:
        self.count = 0
        self._error: Any = None

    def answered(self, error: Any, _message: Any) -> None:
        """Take the answer to a message."""
        self.count -= 1
        self._error = self._error or error

    def check(self, left: int) -> None:
        """Raise RuntimeError when one was refused, or so many have no answer."""
        if self._error or left:
            raise RuntimeError(f"Kafka: {self._error or f'{left} messages without an answer'}")


def _client(module: str) -> Any:
    """A module of librdkafka's client, which may be missing, and is not typed in all releases."""
    return importlib.import_module(module)
