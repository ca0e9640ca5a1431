"""Which Kafka a process asks for a log, where its settings and a switch name two of one prefix."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from broker.app import storage
from broker.app.storage import LogStorage, log_storage
from broker.app.stores.log_place import encode_alter
from broker.coordinator.assignment.channel_records import ChannelRecords
from broker.coordinator.records import ALTER_KEY
from broker.core.cluster.assignment import PChannelMeta, taken
from broker.core.cluster.wal_alter import SEGMENTED, Alter, AlterStage
from broker.data_folder import DataFolder
from broker.meta.memory_store import MemoryMetaStore
from broker.model.ids import Term
from broker.ports.switching.log_switch import Work
from broker.process_settings import Settings
from tests.broker.app.switching.wal_world import NAMES, NODE, SIZES
from tests.broker.wal.kafka.topic_in_memory import MemoryTopics

OLD = "kafka://a:1/tides?replication=1"
NEW = "kafka://b:1/tides?replication=3"
AS_TOLD = "kafka://a:1,a:2/tides?replication=1"
"""The old one, as the coordinator was told it."""
NAME = NAMES[0]


class Cluster:
    """Its metadata, and the Kafkas that were asked for a log. Every process has a new term."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self.store = DataFolder(root), MemoryMetaStore()
        self.asked: list[str] = []
        patch.setattr(storage, "kafka_wal", self._kafka_wal)

    @contextmanager
    def _kafka_wal(self, settings: Settings, *_: object) -> Iterator[MemoryTopics]:
        self.asked.append(settings.wal)
        yield MemoryTopics(SIZES)

    @asynccontextmanager
    async def process(self, wal: str) -> AsyncIterator[LogStorage]:
        settings = Settings(data_dir=self._folder.root, wal=wal)
        async with log_storage(settings, self._folder, "c", self.store) as opened:
            yield opened

    async def write(self, alter: Alter) -> None:
        await self.store.write({ALTER_KEY: encode_alter(alter)})

    async def open(self, process: LogStorage) -> None:
        """Open the log at the next term, and close it."""
        await (await process.wal.open(NAME, await self._next_term())).close()

    async def step(self, process: LogStorage) -> None:
        """Open it, and do one step of the switch."""

        async def at_rest(work: Work) -> None:
            await work()

        log = await process.wal.open(NAME, await self._next_term())
        await process.switch.look()
        await process.switch.step(NAME, log, at_rest)
        await log.close()

    async def _next_term(self) -> Term:
        def next_term(meta: PChannelMeta) -> PChannelMeta:
            return taken(meta, NODE, Term(meta.term + 1))

        return (await ChannelRecords(self.store).change(NAME, next_term)).meta.term


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


async def test_a_switch_back_goes_to_the_kafka_that_it_names(cluster: Cluster) -> None:
    async with cluster.process(OLD) as process:
        await cluster.open(process)
        await cluster.write(Alter(1, AlterStage.DONE, OLD, SEGMENTED))
        await cluster.step(process)
        assert cluster.asked == [OLD]
        await cluster.write(Alter(2, AlterStage.COPYING, SEGMENTED, NEW))
        await cluster.step(process)
        assert cluster.asked == [OLD, NEW]
        assert process.switch.warnings() == []


async def test_so_does_one_to_servers_that_its_log_had_before_others(cluster: Cluster) -> None:
    await cluster.write(Alter(1, AlterStage.DONE, SEGMENTED, OLD))
    async with cluster.process(NEW) as process:
        await cluster.open(process)
        await cluster.write(Alter(2, AlterStage.DONE, OLD, SEGMENTED))
        await cluster.open(process)
        await cluster.write(Alter(3, AlterStage.COPYING, SEGMENTED, OLD))
        await cluster.step(process)
    assert cluster.asked == [NEW, OLD]


async def test_so_does_a_process_that_has_copied_nothing(cluster: Cluster) -> None:
    async with cluster.process(OLD) as process:
        await cluster.write(Alter(2, AlterStage.DONE, SEGMENTED, NEW))
        await cluster.open(process)
    assert cluster.asked == [OLD, NEW]


async def test_so_does_one_that_starts_amid_the_copy(cluster: Cluster) -> None:
    await cluster.write(Alter(2, AlterStage.COPYING, SEGMENTED, NEW))
    async with cluster.process(OLD) as process:
        await cluster.step(process)
    assert cluster.asked == [NEW]


async def test_a_start_with_other_servers_asks_these_for_the_log_of_before(
    cluster: Cluster,
) -> None:
    await cluster.write(Alter(1, AlterStage.DONE, SEGMENTED, OLD))
    async with cluster.process(NEW) as process:
        await cluster.open(process)
    assert cluster.asked == [NEW]


async def test_what_the_coordinator_was_told_of_the_log_of_before_counts_for_it_alone(
    cluster: Cluster,
) -> None:
    async with cluster.process(OLD) as process:
        await cluster.write(Alter(1, AlterStage.COPYING, AS_TOLD, SEGMENTED))
        await cluster.open(process)
    assert cluster.asked == [OLD]
