"""A cluster of two pchannels whose processes die, over logs and metadata in memory."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise

import anyio

from actors import PlannedRestart
from broker.app.stores.stored_places import StoredPlaces
from broker.app.switching.channel_switch import ChannelSwitch, Settled, no_news
from broker.app.switching.log_drivers import LogDrivers
from broker.app.switching.placed_wal import PlacedWal
from broker.coordinator.assignment.channel_records import ChannelRecords
from broker.core.cluster.assignment import PChannelMeta, taken
from broker.core.cluster.wal_alter import SEGMENTED, Alter
from broker.meta.memory_store import MemoryMetaStore
from broker.model.ids import NodeId, PChannelName, Term
from broker.model.record import Record
from broker.ports.switching.log_copies import CopyingWal
from broker.ports.switching.log_switch import Work
from broker.wal.alter.placed_log import PlacedLog
from broker.wal.kafka.kafka_wal import KafkaSizes
from broker.wal.kafka.partition import AnswerLost
from broker.wal.segmented import SegmentedWal
from tests.broker.wal.faulty_files import FaultyFiles
from tests.broker.wal.kafka.topic_in_memory import MemoryTopic, MemoryTopics
from tests.broker.wal.some_records import record
from tests.contracts.wal_drivers import SMALL, read_all

KAFKA = "kafka://a:1/tides"
NAMES = (PChannelName("p0"), PChannelName("p1"))
NODE = NodeId(1)
SIZES = KafkaSizes(segment_bytes=8192, index_spacing_bytes=512, record_bytes_max=1 << 20)
FOR_EVER = 1 << 60


class Killed(BaseException):
    """The process has died at this step."""


class CountedStore(MemoryMetaStore):
    """Dies before or after a write, as its process does."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__()
        self._step = step

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        self._step()
        revision = await super().write(puts, deletes=deletes, expect=expect)
        self._step()
        return revision


@dataclass
class World:
    """What outlives a process, and what was acknowledged. `left`: steps until it dies."""

    files: FaultyFiles = field(default_factory=FaultyFiles)
    topics: dict[str, MemoryTopic] = field(default_factory=dict)
    acknowledged: dict[PChannelName, list[Record]] = field(default_factory=dict)
    marked: str = SEGMENTED
    founded: str = SEGMENTED
    settled: Settled = no_news
    left: int = FOR_EVER
    away: bool = False
    no_room: str = ""
    steps: int = 0

    def __post_init__(self) -> None:
        self.acknowledged = {it: [] for it in NAMES}
        self.store = CountedStore(self.step)

    def step(self, *_: object) -> None:
        self.steps += 1
        self.left -= 1
        if self.left < 0:
            raise Killed

    def mark(self, place: str) -> None:
        """See Markers."""
        self.step()
        self.marked = place

    def settle(self, place: str) -> None:
        """See Markers."""
        self.step()
        self.marked = place

    @asynccontextmanager
    async def process(self, left: int = FOR_EVER) -> AsyncIterator["Process"]:
        """A process that dies after `left` steps."""
        self.files.on_step = self.step
        with LogDrivers(self._driver, no_room=lambda _: self.no_room) as drivers:
            process = Process(self, drivers)
            self.left = left
            try:
                yield process
            except Killed:
                pass
            finally:
                # What the rest of it does has no effect any more.
                self.left, self.files = FOR_EVER, self.files.after_kill()
                await process.end()

    def _driver(self, place: str, _: ExitStack) -> CopyingWal:
        if place == SEGMENTED:
            return SegmentedWal(self.files, SMALL)
        return MemoryTopics(SIZES, topics=self.topics, step=self._in_kafka)

    def _in_kafka(self, what: str) -> None:
        self.step()
        if self.away and what == "append":
            raise AnswerLost("Kafka is away")


class Process:
    """See `World.process`."""

    def __init__(self, world: World, drivers: LogDrivers) -> None:
        self.world = world
        self.places = StoredPlaces(world.store, world.founded)
        self.wal = PlacedWal(self.places, drivers)
        self.switch = ChannelSwitch(self.places, drivers, world, world.settled, self._now_s)
        self.looks = 0
        """A second lies between two of them."""
        self.logs: dict[PChannelName, PlacedLog] = {}

    def _now_s(self) -> float:
        return anyio.current_time() + self.looks

    async def start(self) -> None:
        """Own both pchannels at their next terms."""
        for name in NAMES:
            await self.open(name)

    async def open(self, name: PChannelName) -> None:
        """Own a pchannel at its next term."""

        def next_term(meta: PChannelMeta) -> PChannelMeta:
            return taken(meta, NODE, Term(meta.term + 1))

        if name in self.logs:
            await self.logs.pop(name).close()
        recorded = await ChannelRecords(self.world.store).change(name, next_term)
        self.logs[name] = await self.wal.open(name, recorded.meta.term)

    async def append(self, name: PChannelName, count: int = 1, size: int = 50) -> None:
        """Append records, and remember that they were acknowledged."""
        for _ in range(count):
            log = self.logs[name]
            new = record(log.bounds().next_id, term=log.term, messages=2, size=size)
            await log.append([new])
            self.world.acknowledged[name].append(new)

    async def look(self) -> bool:
        """One look of the node at all of its logs; whether a switch is under way."""
        if not await self.steps():
            return False
        await self.switch.advance()
        return True

    async def steps(self) -> bool:
        """The same without entering the next stage."""
        self.looks += 1
        if not await self.switch.look():
            return False
        for name in NAMES:

            async def at_rest(work: Work) -> None:
                await work()

            try:
                await self.switch.step(name, self.logs[name], at_rest)
            except PlannedRestart:
                await self.open(name)
        return True

    async def until_ended(self, *, appends: bool = True) -> Alter:
        """Look until nothing is left to do, with appends in between."""
        for number in range(200):
            if not await self.look():
                alter = await self.places.alter()
                assert alter is not None
                return alter
            if appends and number < 12:
                for name in NAMES:
                    await self.append(name)
        raise AssertionError(await self.places.progress())

    async def begin(self, target: str, *, leaves_history: bool = False) -> None:
        """Begin a switch, unless it is under way."""
        await self.places.begin(target, leaves_history=leaves_history)

    async def check(self) -> None:
        """All that was acknowledged is there as it was, and nothing twice."""
        for name in NAMES:
            found = await read_all(self.logs[name])
            known = self.world.acknowledged[name]
            assert [it for it in found if it in known] == known, name
            for one, other in pairwise(found):
                assert one.next_id == other.base_id
                assert one.last_tick < other.base_tick
                assert one.term <= other.term

    async def end(self) -> None:
        """Let go of threads and files."""
        with anyio.CancelScope(shield=True):
            for log in self.logs.values():
                with suppress(BaseException):
                    await log.close()
