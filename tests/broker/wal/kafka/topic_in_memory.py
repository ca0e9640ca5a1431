"""A topic in memory, which obeys as Kafka does; and what an owner sees of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.model.ids import PChannelName, Term
from broker.ports.wal import Corrupt, WalError
from broker.wal.kafka.entries import OnDamage, TopicRecord
from broker.wal.kafka.fetched import Fetched
from broker.wal.kafka.kafka_log import KafkaLog, OpenedTopic
from broker.wal.kafka.kafka_wal import KafkaSizes, opened_topic
from broker.wal.kafka.kafka_writer import TopicOwner
from broker.wal.kafka.partition import OffsetGone, Unavailable
from broker.wal.segmented.worker import Worker


def _nothing(_what: str) -> None:
    pass


@dataclass(slots=True)
class MemoryTopic:
    """One partition: what it holds from `low` on. `stamps` has the time of each."""

    stored: list[TopicRecord] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    low: int = 0

    @property
    def high(self) -> int:
        return self.low + len(self.stored)

    def put(self, key: bytes | None, value: bytes, stamp_ms: int = 0) -> int:
        """As any producer may."""
        self.stored.append(TopicRecord(self.high, key, value))
        self.stamps.append(stamp_ms)
        return self.high - 1

    def drop_before(self, offset: int) -> None:
        """As anybody may who is allowed to delete records."""
        gone = max(0, min(offset, self.high) - self.low)
        self.stored, self.stamps = self.stored[gone:], self.stamps[gone:]
        self.low += gone

    def __getitem__(self, offset: int) -> TopicRecord:
        return self.stored[offset - self.low]


class MemoryPartition:
    """Implements `Partition`. `step` is called before each thing that Kafka is asked."""

    def __init__(
        self,
        topic: MemoryTopic,
        step: Callable[[str], None] = _nothing,
        value_bytes_max: int = 1 << 23,
        fetched: Fetched | None = None,
    ) -> None:
        self.kept, self.step, self._value_bytes_max = topic, step, value_bytes_max
        self._fetched = fetched or Fetched(0)
        self._fetched.forget(self.topic)
        self.reads = self.read_bytes = 0

    @property
    def topic(self) -> str:
        return "some.topic"

    @property
    def value_bytes_max(self) -> int:
        return self._value_bytes_max

    def append(self, key: bytes, value: bytes, stamp_ms: int) -> int:
        self.step("append")
        offset = self.kept.put(key, value, stamp_ms)
        self.step("answer")
        return offset

    def read(self, offset: int, until: int, bytes_max: int) -> Sequence[TopicRecord]:
        if known := self._fetched.find(self.topic, offset, until, bytes_max):
            return known
        generation = self._fetched.generation(self.topic)
        self.step("read")
        if not self.kept.low <= offset < self.kept.high:
            raise OffsetGone(self.topic, offset)
        if until > self.kept.high:
            raise Unavailable(f"nothing at offset {self.kept.high}")
        found, size = list[TopicRecord](), 0
        while offset < until and (not found or size < bytes_max):
            found.append(self.kept[offset])
            size += len(found[-1].value)
            offset += 1
        self.reads += 1
        self.read_bytes += size
        self._fetched.put(self.topic, found, generation)
        return found

    def ends(self) -> tuple[int, int]:
        self.step("ends")
        return self.kept.low, self.kept.high

    def offset_at(self, stamp_ms: int) -> int:
        self.step("offset_at")
        later = (at for at, it in enumerate(self.kept.stamps) if it >= stamp_ms)
        return self.kept.low + next(later, len(self.kept.stamps))

    def delete_before(self, offset: int) -> None:
        self.step("delete")
        self.kept.drop_before(offset)
        self._fetched.forget(self.topic, below=offset)

    def interrupt(self) -> None:
        self.step("interrupt")

    def close(self) -> None:
        self.step("close")


class MemoryTopics:
    """Implements `ports.wal.Wal` on topics in memory: all of the Kafka driver but the client.

    `skip`: damage is noted in `damages`, and skipped. `fetched`: what was read is remembered there.
    """

    def __init__(
        self,
        sizes: KafkaSizes,
        cluster: str = "c",
        topics: dict[str, MemoryTopic] | None = None,
        *,
        skip: bool = False,
        step: Callable[[str], None] = _nothing,
        value_bytes_max: int = 1 << 23,
    ) -> None:
        self.fetched: Fetched | None = None
        self.topics = {} if topics is None else topics
        self._sizes, self._cluster, self._step = sizes, cluster, step
        self._value_bytes_max = value_bytes_max
        self.damages: list[Corrupt] = []
        self._on_damage: OnDamage = self.damages.append if skip else _refuse
        self.told: dict[str, WalError | None] = {}

    @property
    def name(self) -> str:
        return "rocksmq"

    def open_now(self, channel: str, term: int, *, anew: bool = False) -> OpenedTopic:
        """Open a log without its thread."""
        kept = self.topics.setdefault(channel, MemoryTopic())
        partition = MemoryPartition(kept, self._step, self._value_bytes_max, self.fetched)
        owner = TopicOwner(channel, Term(term), self._cluster)
        return opened_topic(partition, owner, self._sizes, self._on_damage, anew=anew)

    async def open(self, channel: PChannelName, term: Term) -> KafkaLog:
        return self._log(channel, self.open_now(channel, term))

    async def open_anew(self, channel: PChannelName, term: Term) -> KafkaLog:
        return self._log(channel, self.open_now(channel, term, anew=True))

    async def remove(self, channel: PChannelName, term: Term) -> bool:
        return False

    def _log(self, channel: PChannelName, opened: OpenedTopic) -> KafkaLog:
        return KafkaLog(
            opened,
            Worker(f"wal-{channel}"),
            lambda failure: self.told.update({channel: failure}),
        )

    def warnings(self) -> Sequence[str]:
        return [str(it) for it in self.told.values() if it is not None]

    async def why_unwritable(self, channel: PChannelName) -> str:
        return ""


def _refuse(damage: Corrupt) -> None:
    raise damage
