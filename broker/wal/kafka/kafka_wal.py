"""Opens logs in Kafka: topic, claim, what it holds."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from anyio import to_thread

from broker.model.ids import PChannelName, Term
from broker.ports.wal import Corrupt, Unsuitable, WalError, WriterFailed
from broker.wal.kafka.confluent_partition import ConfluentPartition
from broker.wal.kafka.confluent_settings import (
    KEY_AND_FRAME_BYTES,
    VALUE_BYTES_MAX,
    ClientSettings,
)
from broker.wal.kafka.consumers import Consumers
from broker.wal.kafka.entries import OnDamage
from broker.wal.kafka.fetched import Fetched
from broker.wal.kafka.kafka_log import KafkaLog, OpenedTopic
from broker.wal.kafka.kafka_reader import KafkaReader
from broker.wal.kafka.kafka_url import KafkaPlace
from broker.wal.kafka.kafka_writer import TopicOwner
from broker.wal.kafka.offset_search import OffsetSearch
from broker.wal.kafka.partition import Partition, Unavailable
from broker.wal.kafka.topic_ids import NoTopicIds, TopicIds
from broker.wal.kafka.topic_opening import open_topic
from broker.wal.kafka.topic_scan import TopicScan
from broker.wal.kafka.topics import Topics
from broker.wal.segmented.worker import Worker

MIB: Final = 1024 * 1024
_TOPIC_CHARS_MAX: Final = 249


@dataclass(frozen=True, slots=True)
class KafkaSizes:
    """Sizes in bytes. `record_bytes_max`: the largest record that anybody may append."""

    segment_bytes: int = 64 * MIB
    index_spacing_bytes: int = 64 * 1024
    record_bytes_max: int = 17 * MIB
    skip_damage: bool = False


class KafkaWal:
    """Implements `ports.wal.Wal` with a topic for each pchannel.

    `cluster` is written into the topics, so that no other cluster takes them. `ids` remembers the
    topics, so that one that is made anew is told. Raises BadClientFile. Every damaged place
    is reported to `on_damage`, then raised, or skipped with `sizes.skip_damage`.
    """

    def __init__(
        self,
        place: KafkaPlace,
        cluster: str = "",
        sizes: KafkaSizes | None = None,
        *,
        ids: TopicIds | None = None,
        on_damage: OnDamage | None = None,
    ) -> None:
        self._place, self._cluster = place, cluster
        self._sizes = sizes or KafkaSizes()
        self._clients = ClientSettings.of(place)
        self._ids: TopicIds = ids or NoTopicIds()
        self._consumers, self._fetched = Consumers(self._clients.consumer), Fetched()
        self._topics = Topics(place, self._clients.admin, self._sizes.record_bytes_max, self._ids)
        report = on_damage or _ignore_damage
        self._on_damage: OnDamage = (
            report if self._sizes.skip_damage else partial(_refuse_damage, report)
        )
        self._lock = threading.Lock()
        self._failures: dict[str, WalError] = {}

    @property
    def name(self) -> str:
        # The ids are ours, as of segment files: a client of Milvus that is told "kafka" would take
        # them for Kafka's offsets.
        return "rocksmq"

    async def open(self, channel: PChannelName, term: Term) -> KafkaLog:
        return await self._opened(channel, term, anew=False)

    async def open_anew(self, channel: PChannelName, term: Term) -> KafkaLog:
        """See `ports.switching.log_copies`. What says whose the topic is must be sound."""
        return await self._opened(channel, term, anew=True)

    async def remove(self, channel: PChannelName, term: Term) -> bool:
        """See `ports.switching.log_copies`. An opening says whose the topic is."""
        return False

    async def _opened(self, channel: PChannelName, term: Term, *, anew: bool) -> KafkaLog:
        worker = Worker(f"wal-{channel}")
        topic = self._place.topic(channel)
        try:
            if len(topic) > _TOPIC_CHARS_MAX:
                raise Unsuitable(f"topic {topic} has more than {_TOPIC_CHARS_MAX} characters")
            known = await self._ids.known(topic)
            takes, found = await worker.run(partial(self._ready, topic, channel, known))
            if not known:
                # Before anything is written to it.
                self._topics.check_id(topic, await self._ids.remember(topic, found), found)
            owner = TopicOwner(channel, term, self._cluster)
            opening = partial(self._open_now, topic, takes, owner, anew=anew)
            opened = await worker.run_to_open(opening, lambda it: it.partition.close())
        except BaseException as error:
            worker.stop()
            if isinstance(error, WriterFailed | Unsuitable):
                self._told(channel, error)
            raise
        self._told(channel, None)
        return KafkaLog(opened, worker, partial(self._told, channel))

    async def why_unwritable(self, channel: PChannelName) -> str:
        return await to_thread.run_sync(self._why_unwritable, channel)

    async def why_away(self) -> str:
        """Why Kafka does not answer; empty: it does."""
        try:
            await to_thread.run_sync(self._topics.reach)
        except (Unavailable, Unsuitable) as failure:
            return str(failure)
        return ""

    def warnings(self) -> Sequence[str]:
        with self._lock:
            return [f"log in {self._place.shown}: {it}" for it in self._failures.values()]

    def close(self) -> None:
        """Disconnect what the logs share. Idempotent; close the logs first."""
        self._consumers.close()

    def _ready(self, topic: str, channel: PChannelName, known: str) -> tuple[int, str]:
        try:
            return self._topics.ready(topic, known)
        except Unavailable as failure:
            raise WriterFailed(f"{channel}: {failure}") from failure

    def _open_now(self, topic: str, takes: int, owner: TopicOwner, *, anew: bool) -> OpenedTopic:
        try:
            partition = ConfluentPartition(
                topic, self._clients.producer, self._consumers, self._fetched,
                self._topics.delete_before, min(VALUE_BYTES_MAX, takes - KEY_AND_FRAME_BYTES),
            )  # fmt: skip
        except Unavailable as failure:
            raise WriterFailed(f"{owner.channel}: {failure}") from failure
        try:
            return opened_topic(partition, owner, self._sizes, self._on_damage, anew=anew)
        except BaseException:
            partition.close()
            raise

    def _why_unwritable(self, channel: PChannelName) -> str:
        with self._lock:
            failed = channel in self._failures
        try:
            self._topics.reach()
            return self._topics.trouble(self._place.topic(channel)) if failed else ""
        except (Unavailable, Unsuitable) as failure:
            return str(failure)

    def _told(self, channel: str, failure: WalError | None) -> None:
        with self._lock:
            if failure is not None:
                self._failures[channel] = failure
            else:
                with suppress(KeyError):
                    del self._failures[channel]


def opened_topic(
    partition: Partition,
    owner: TopicOwner,
    sizes: KafkaSizes,
    on_damage: OnDamage,
    *,
    anew: bool = False,
) -> OpenedTopic:
    """Own a topic at a term; blocks its thread. See `open_topic`."""
    scan = TopicScan(partition, on_damage)
    search = OffsetSearch(scan, sizes.index_spacing_bytes)
    writer = open_topic(scan, owner, sizes.segment_bytes, search.wrote, anew=anew)
    reader = KafkaReader(owner.channel, scan, search, lambda: writer.view, writer.check_owner)
    return OpenedTopic(owner.channel, writer, reader, search, partition)


def _ignore_damage(_damage: Corrupt) -> None:
    pass


def _refuse_damage(report: OnDamage, damage: Corrupt) -> None:
    report(damage)
    raise damage
