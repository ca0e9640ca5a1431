"""Which switches the coordinator begins."""

from pathlib import Path

import pytest

from broker.app.stores.folder_markers import check_founded
from broker.app.stores.stored_places import StoredPlaces
from broker.app.switching.altering import StoredAltering, stored_altering
from broker.coordinator.records import encode_member, node_key
from broker.core.cluster.node_leases import NodeMember
from broker.core.cluster.wal_alter import SEGMENTED, AlterRefusal, AlterStage, Impossible
from broker.data_folder import DataFolder
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId
from broker.ports.meta import MetaEntry, MetaError, MetaStore
from broker.process_settings import Settings
from tests.broker.app.switching.wal_world import KAFKA

AWAY = AlterRefusal(Impossible.UNREACHABLE, "no answer")


def altering(store: MetaStore, refusal: AlterRefusal | None = None) -> StoredAltering:
    async def check(_: str) -> AlterRefusal | None:
        return refusal

    return StoredAltering(StoredPlaces(store, SEGMENTED), check)


async def refused(asked: StoredAltering, target: str) -> str:
    with pytest.raises(Refused) as caught:
        await asked.begin(target, leaves_history=False)
    assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
    return caught.value.refusal.cause


async def test_a_switch_is_begun_once_and_turned_back_once() -> None:
    asked = altering(MemoryMetaStore())
    assert (await asked.state()).alter is None
    await asked.begin(KAFKA, leaves_history=True)
    alter = (await asked.state()).alter
    assert alter is not None
    assert (alter.stage, alter.leaves_history) == (AlterStage.COPYING, True)
    assert "already" in await refused(asked, SEGMENTED)
    await asked.abort()
    again = (await asked.state()).alter
    assert again is not None
    assert again.stage is AlterStage.ABORTING


async def test_an_older_node_keeps_the_log_where_it_is() -> None:
    store = MemoryMetaStore()
    older = NodeMember(NodeId(3), "a:1", 1, "", 1, 0.0, knows_places=False)
    await store.write({node_key(NodeId(3)): encode_member(older)})
    assert "older release are in the cluster (3)" in await refused(altering(store), KAFKA)


async def test_what_is_wrong_or_away_is_told() -> None:
    assert "is not HOST or HOST:PORT" in await refused(altering(MemoryMetaStore()), "kafka://x:/p")
    assert await refused(altering(MemoryMetaStore(), AWAY), KAFKA) == "no answer"


async def test_another_kafka_with_the_same_prefix_is_named_in_the_refusal() -> None:
    asked = stored_altering(Settings(wal="kafka://a:1/p"), MemoryMetaStore(), alone=True)
    assert (await refused(asked, "kafka://a:1/p")).endswith("already; nothing was changed")
    assert "if b:2 are of another Kafka" in await refused(asked, "kafka://b:2/p")


async def test_segment_files_are_refused_where_nodes_may_be_on_several_hosts() -> None:
    settings = Settings(meta="etcd://a:1/p", wal=KAFKA)
    asked = stored_altering(settings, MemoryMetaStore(), alone=False)
    assert "may run on several hosts" in await refused(asked, SEGMENTED)
    await stored_altering(settings, MemoryMetaStore(), alone=True).begin(
        SEGMENTED, leaves_history=False
    )


async def test_a_coordinator_that_was_told_no_log_begins_no_switch_of_one_in_kafka(
    tmp_path: Path,
) -> None:
    store, nodes = MemoryMetaStore(), Settings(data_dir=tmp_path, wal=KAFKA)
    check_founded(nodes, DataFolder(tmp_path))
    asked = stored_altering(Settings(data_dir=tmp_path), store, alone=False)
    for target in (SEGMENTED, KAFKA, "kafka://a:1/other"):
        told = await refused(asked, target)
        assert "started for a log in segment files, and the log of the nodes is in Kafka" in told
        assert told.endswith("the same --wal as the nodes, here --wal kafka://HOST:PORT/tides")
    with pytest.raises(Refused, match="same --wal as the nodes"):
        await asked.state()
    asked = stored_altering(nodes, store, alone=False)
    assert (await asked.state()).founded == KAFKA
    await asked.begin(SEGMENTED, leaves_history=False)
    # From here on the metadata says where it is.
    asked = stored_altering(Settings(data_dir=tmp_path), store, alone=False)
    assert (await asked.state()).alter is not None
    await asked.abort()


async def test_a_coordinator_that_was_told_a_kafka_begins_no_switch_of_segment_files(
    tmp_path: Path,
) -> None:
    settings = Settings(data_dir=tmp_path, wal=KAFKA)
    asked = stored_altering(settings, MemoryMetaStore(), alone=False)
    assert (await asked.state()).founded == KAFKA, "no node has opened a log"
    (tmp_path / "wal" / "p0").mkdir(parents=True)
    told = await refused(asked, SEGMENTED)
    assert "started for a log in kafka://a:1/tides, and the log of the nodes is in segment" in told
    assert told.endswith("here without --wal")


async def test_metadata_that_does_not_answer_is_no_answer() -> None:
    class Away(MemoryMetaStore):
        async def get(self, key: str) -> MetaEntry | None:
            raise MetaError("away")

    with pytest.raises(Refused, match="away") as caught:
        await altering(Away()).state()
    assert caught.value.refusal.code is StreamingCode.INNER
