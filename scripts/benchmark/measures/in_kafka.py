"""Measures Tidemark with its log in Kafka beside a bare producer and consumer on the same Kafka.

Both ask for the same acknowledgements and send batches of 1,000; appends take turns in slices.
"""

import asyncio
import importlib
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import uvloop
from served_broker import ServedBroker, served_broker

from benchmark.baselines.disk import BODY
from benchmark.baselines.kafka_topics import Waiting
from benchmark.measures.batches import BATCH, BATCHES_IN_FLIGHT, load
from benchmark.measures.latency import Latency
from benchmark.measures.master.together import Values
from benchmark.results.figures import P50, RATE, quantiles
from broker.client import connect
from broker.client.cluster.targets import NewVChannel

SLICES = 3
APPENDS_ONE_BY_ONE = 200
"""In each slice."""
LINGER_MS = 5
"""For how long the bare producer waits for a batch of 1,000: it sends them as fast as it can."""
NODES = 4
RUN_S_MAX = 300
CALL_S_MAX = 30.0
SETTLE_S_MAX = 60
MESSAGE_BYTES_MAX = 8 << 20
VCHANNEL = NewVChannel("by-dev-rootcoord-dml_1_2v0")
FOUR = [NewVChannel(f"by-dev-rootcoord-dml_{at}_5v{at}") for at in range(NODES)]

BARE_APPEND, BARE_READ = "bare producer, batches of 1,000", "bare consumer, catching up"
BARE_ONE = "bare producer, one by one"
OUR_APPEND, OUR_READ = "Tidemark append_batch, of 1,000", "Tidemark read_batches, catching up"
OUR_ONE, OUR_DELAY = "Tidemark append, one by one", "Tidemark append, p50 beyond the bare one"
ONE_NODE = "Tidemark append_batch, 4 pchannels on one node"
FOUR_NODES = f"Tidemark append_batch, 4 pchannels on {NODES} nodes"


class InKafka:
    """`address`: of the Kafka that both use; `messages`: of each rate in a round."""

    def __init__(self, folder: Path, address: str, messages: int) -> None:
        self._folder, self._address, self._messages = folder, address, messages
        self._rounds = 0

    def measure(self) -> Mapping[str, Values]:
        """One round, in topics of its own: messages a second, and milliseconds of an append."""
        self._rounds += 1
        bare = BareTopic(self._address, f"bare-{self._rounds}")
        with TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as name:
            data = Path(name) / "data"
            with self._broker(data, "one") as broker:
                found: dict[str, Values] = _run(_appends(bare, broker.address, self._messages))
            # A broker that has just started has nothing in memory: what it reads is in Kafka.
            with self._broker(data, "one") as broker:
                held = int(found[OUR_APPEND]["messages"])
                found[OUR_READ] = _run(_read(broker.address, held))
            found[BARE_READ] = bare.read(held)
            for name_of, nodes in ((ONE_NODE, 1), (FOUR_NODES, NODES)):
                place = Path(name) / f"of-{nodes}"
                with self._broker(place, f"of-{nodes}", "--nodes", str(nodes)) as broker:
                    found[name_of] = _run(_append_to_four(broker.address, self._messages))
        return found

    def _broker(
        self, data: Path, prefix: str, *options: str
    ) -> AbstractContextManager[ServedBroker]:
        place = f"kafka://{self._address}/{prefix}-{self._rounds}"
        wal = f"{place}?replication=1&min_isr=1&sync=replicas"
        return served_broker(data, "--wal", wal, "--pchannels", str(NODES), *options)


class BareTopic:
    """One new topic with a partition; blocks its thread."""

    def __init__(self, address: str, topic: str) -> None:
        self._server, self._topic = {"bootstrap.servers": address}, topic
        admin: Any = importlib.import_module("confluent_kafka.admin")
        settings = {"max.message.bytes": str(MESSAGE_BYTES_MAX)}
        creator = admin.AdminClient(self._server)
        made = creator.create_topics([admin.NewTopic(topic, 1, 1, config=settings)])
        made[topic].result(CALL_S_MAX)
        self._client: Any = importlib.import_module("confluent_kafka")
        self._held = 0

    def append(self, messages: int) -> float:
        """Produce with as many batches of 1,000 in flight as ours; the seconds that it took."""
        producer, waiting = self._producer(linger_ms=LINGER_MS), Waiting()
        self._send(producer, waiting)
        started = time.perf_counter()
        for _ in range(messages):
            while waiting.count >= BATCH * BATCHES_IN_FLIGHT:
                if not producer.poll(CALL_S_MAX):
                    waiting.check(waiting.count)
            waiting.count += 1
            producer.produce(self._topic, BODY, on_delivery=waiting.answered)
            producer.poll(0)
        waiting.check(producer.flush(CALL_S_MAX))
        self._held += messages
        return time.perf_counter() - started

    def one_by_one(self, times: int) -> list[float]:
        """Seconds of each of so many messages that are awaited one after the other."""
        producer, waiting, took_s = self._producer(linger_ms=0), Waiting(), list[float]()
        self._send(producer, waiting)
        for _ in range(times):
            started = time.perf_counter()
            self._send(producer, waiting)
            took_s.append(time.perf_counter() - started)
        return took_s

    def read(self, messages: int) -> Values:
        """Consume from the start of the topic by 1,000, each payload taken out."""
        if self._held < messages:
            self.append(messages - self._held)
        own = {"group.id": "bench", "enable.auto.commit": False}
        consumer = self._client.Consumer({**self._server, **own})
        consumer.assign([self._client.TopicPartition(self._topic, 0, 0)])
        seen, started = 0, time.perf_counter()
        try:
            while seen < messages:
                found = consumer.consume(min(BATCH, messages - seen), CALL_S_MAX)
                failed = [str(it.error()) for it in found if it.error()]
                if failed or not found:
                    told = failed or f"{seen} of {messages} messages in {CALL_S_MAX} s"
                    raise RuntimeError(f"Kafka gives no messages: {told}")
                seen += len([it.value() for it in found])
            return _rate(seen, time.perf_counter() - started)
        finally:
            consumer.close()

    def _send(self, producer: Any, waiting: Waiting) -> None:
        waiting.count += 1
        producer.produce(self._topic, BODY, on_delivery=waiting.answered)
        waiting.check(producer.flush(CALL_S_MAX))
        self._held += 1

    def _producer(self, linger_ms: int) -> Any:
        """It sends when 1,000 are there, or at once without `linger_ms`; all as our log asks."""
        return self._client.Producer({
            **self._server,
            "acks": "all", "enable.idempotence": True, "compression.type": "none",
            "linger.ms": linger_ms, "batch.num.messages": BATCH, "batch.size": MESSAGE_BYTES_MAX,
            "message.max.bytes": MESSAGE_BYTES_MAX,
        })  # fmt: skip


async def _appends(bare: BareTopic, address: str, messages: int) -> dict[str, Values]:
    theirs_s, ours_s, sent = 0.0, 0.0, 0
    their_one, our_one = list[float](), list[float]()
    each = max(messages // SLICES, BATCH * BATCHES_IN_FLIGHT)
    latency = Latency(address)
    async with connect(address) as log:
        await log.append(VCHANNEL, BODY)
        for _ in range(SLICES):
            started = time.perf_counter()
            count = await load(log, VCHANNEL, each, "fsync")
            ours_s += time.perf_counter() - started
            theirs_s += await asyncio.to_thread(bare.append, count)
            sent += count
            their_one += await asyncio.to_thread(bare.one_by_one, APPENDS_ONE_BY_ONE)
            our_one.append((await latency.one_by_one("fsync", APPENDS_ONE_BY_ONE))[P50])
    theirs, ours = quantiles(their_one), {P50: median(our_one)}
    return {
        BARE_APPEND: _rate(sent, theirs_s),
        OUR_APPEND: _rate(sent, ours_s),
        BARE_ONE: theirs,
        OUR_ONE: ours,
        OUR_DELAY: {P50: ours[P50] - theirs[P50]},
    }


async def _read(address: str, messages: int) -> Values:
    async with connect(address) as log:
        seen, started = 0, time.perf_counter()
        async for batch in log.read_batches(VCHANNEL, start="all"):
            seen += len(batch.payloads)
            if seen >= messages:
                break
        return _rate(seen, time.perf_counter() - started)


async def _append_to_four(address: str, messages: int) -> Values:
    async with connect(address) as log:
        async with asyncio.timeout(SETTLE_S_MAX):
            for vchannel in FOUR:
                await log.append(vchannel, BODY)
        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            sent = [
                tasks.create_task(load(log, it, max(messages // NODES, 4 * BATCH), "fsync"))
                for it in FOUR
            ]
        return _rate(sum(it.result() for it in sent), time.perf_counter() - started)


def _rate(messages: int, took_s: float) -> dict[str, float]:
    return {RATE: messages / took_s, "messages": messages}


def _run(work: Any) -> Any:
    return uvloop.run(asyncio.wait_for(work, RUN_S_MAX))
