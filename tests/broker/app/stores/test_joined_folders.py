"""A cluster with a data folder on each host: which folders join, and which are refused."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from broker.app.process_errors import CannotStart
from broker.app.storage import log_storage, metadata
from broker.app.stores.etcd_metadata import MetadataUse, folder_token
from broker.app.stores.log_place import encode_alter
from broker.app.stores.log_record import keep_log_true
from broker.app.stores.metadata_copy import to_sqlite
from broker.app.switching.altering import stored_altering
from broker.coordinator.leases.leadership import lead
from broker.coordinator.records import ALTER_KEY
from broker.core.cluster.wal_alter import SEGMENTED, Alter, AlterStage
from broker.data_folder import DataFolder
from broker.model.failure import Refused
from broker.ports.meta import MetaStore
from broker.process_settings import Settings
from tests.local_etcd import EtcdServer

ALONE, CANDIDATE, NODE = MetadataUse.ALONE, MetadataUse.CANDIDATE, MetadataUse.NODE
KAFKA = "kafka://127.0.0.1:1/log"
"""Opening the metadata asks no Kafka."""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


class Hosts:
    """Folders of several hosts, and one prefix."""

    def __init__(self, root: Path, etcd: EtcdServer) -> None:
        self.root = root
        self.meta = f"etcd://{etcd.address}/{root.name}"

    def folder(self, host: str) -> DataFolder:
        (self.root / host).mkdir(exist_ok=True)
        return DataFolder(self.root / host)

    @asynccontextmanager
    async def opened(
        self, host: str, use: MetadataUse = CANDIDATE, wal: str = KAFKA
    ) -> AsyncIterator[MetaStore]:
        folder = self.folder(host)
        settings = Settings(data_dir=folder.root, meta=self.meta, wal=wal)
        async with metadata(settings, folder, use) as store:
            yield store

    async def refusal(self, host: str, use: MetadataUse = CANDIDATE, wal: str = KAFKA) -> str:
        with pytest.raises(CannotStart) as caught:
            async with self.opened(host, use, wal):
                pass
        return str(caught.value)

    def note(self, host: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.folder(host).metadata_note.read_text())
        return found


@pytest.fixture
def hosts(tmp_path: Path, etcd: EtcdServer) -> Hosts:
    return Hosts(tmp_path, etcd)


async def test_new_folders_join_a_cluster_whose_log_is_in_kafka(hosts: Hosts) -> None:
    async with hosts.opened("a") as first, hosts.opened("b") as second:
        await first.write({"k": b"1"})
        assert (await second.get("k")) == (await first.get("k"))
    async with hosts.opened("c", NODE), hosts.opened("b"):
        pass
    notes = [hosts.note(it) for it in "abc"]
    assert len({it["owner"] for it in notes}) == 1
    assert [it["joined"] for it in notes] == [False, True, True]


async def test_hosts_that_start_at_once_are_one_cluster(hosts: Hosts) -> None:
    async def host(name: str) -> None:
        async with hosts.opened(name):
            pass

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(host, f"h{number}")
    notes = [hosts.note(f"h{number}") for number in range(6)]
    assert len({it["owner"] for it in notes}) == 1
    assert sum(not it["joined"] for it in notes) == 1


async def test_another_log_or_none_is_no_part_of_the_cluster(hosts: Hosts) -> None:
    async with hosts.opened("a"):
        told = await hosts.refusal("b", wal="kafka://127.0.0.1:1/other")
        assert "its log is in kafka://log, not in kafka://other; name another prefix" in told
        assert "a broker with another data folder" in await hosts.refusal("b", wal="")
        assert "a broker with another data folder" in await hosts.refusal("b", ALONE)
        assert "with its log in kafka://log, not in kafka://other" in await hosts.refusal(
            "a", wal="kafka://127.0.0.1:1/other"
        )
        # Else its node would keep a log of its own there.
        async with hosts.opened("c"):
            pass
        assert "pass --wal as to the other processes" in await hosts.refusal("c", NODE, wal="")
        assert "is one of several of its cluster" in await hosts.refusal("c", ALONE)


async def test_a_cluster_with_its_log_in_a_folder_is_joined_by_nobody(hosts: Hosts) -> None:
    async with hosts.opened("a", ALONE, wal=""):
        told = await hosts.refusal("b")
    assert "its log is in its data folder, or has not said where, not in kafka://log" in told
    assert not hosts.folder("b").metadata_note.exists()


async def test_an_earlier_release_s_cluster_is_joined_once_its_log_is_told(hosts: Hosts) -> None:
    async with hosts.opened("a", wal=""):
        pass
    assert "has not said where" in await hosts.refusal("b")
    async with hosts.opened("a", NODE), hosts.opened("b"):
        pass


async def test_who_wants_the_cluster_alone_waits_for_coordinators_elsewhere(hosts: Hosts) -> None:
    async with hosts.opened("a", ALONE), hosts.opened("b") as store:
        other = folder_token(hosts.folder("b").root)
        async with store.announced(f"coordinator/{other}/0-x", b"b:1"):  # type: ignore[attr-defined]
            told = await hosts.refusal("a", ALONE)
            assert "coordinators of this cluster run on other hosts (b:1): stop them" in told
        own = folder_token(hosts.folder("a").root)
        async with (
            store.announced(f"coordinator/{own}/0-x", b"a:1"),  # type: ignore[attr-defined]
            hosts.opened("a", ALONE),
        ):
            pass  # killed: the lock of the folder says that it has ended


async def test_a_token_of_a_folder_stays_and_is_of_that_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert folder_token(tmp_path / "a") == folder_token(tmp_path / "a")
    assert folder_token(tmp_path / "a") != folder_token(tmp_path / "b")


async def test_the_record_follows_a_switch_and_no_other_folder_takes_segment_files_for_its_own(
    hosts: Hosts,
) -> None:
    async def switch(wal: str, target: str) -> None:
        async with hosts.opened("a", ALONE, wal) as store:
            done = Alter(1, AlterStage.DONE, wal, target)
            await store.write({ALTER_KEY: encode_alter(done)})
            await keep_log_true(store)

    async with hosts.opened("a"), hosts.opened("b"):
        pass
    await switch(KAFKA, "")
    assert "in its data folder" in await hosts.refusal("c")
    async with hosts.opened("b") as store:
        settings = Settings(data_dir=hosts.folder("b").root, meta=hosts.meta, wal=KAFKA)
        with pytest.raises(CannotStart, match="is another one: start there"):
            async with log_storage(settings, hosts.folder("b"), "c", store):
                pass
    await switch("", KAFKA)
    async with hosts.opened("c"):
        pass


@pytest.mark.parametrize(
    "alter",
    [
        Alter(1, AlterStage.DONE, KAFKA, SEGMENTED),
        Alter(1, AlterStage.SWITCHING, KAFKA, SEGMENTED),
        Alter(2, AlterStage.ABORTED, SEGMENTED, KAFKA),
    ],
)
async def test_metadata_is_copied_back_to_the_folder_that_has_the_segment_files_alone(
    hosts: Hosts, alter: Alter
) -> None:
    async with hosts.opened("a") as store, hosts.opened("b"):
        await store.write({ALTER_KEY: encode_alter(alter)})
    there, elsewhere = hosts.folder("a"), hosts.folder("b")
    with pytest.raises(CannotStart, match="is another one: copy the metadata there"):
        await to_sqlite(Settings(data_dir=elsewhere.root, meta=hosts.meta))
    assert elsewhere.metadata_note.exists()
    assert not elsewhere.metadata.exists()
    await to_sqlite(Settings(data_dir=there.root, meta=hosts.meta))
    assert there.metadata.exists()


async def test_metadata_is_copied_back_to_a_folder_that_joined_while_the_log_is_in_kafka(
    hosts: Hosts,
) -> None:
    async with hosts.opened("a") as store, hosts.opened("b"):
        done = Alter(2, AlterStage.DONE, SEGMENTED, KAFKA)
        await store.write({ALTER_KEY: encode_alter(done)})
    await to_sqlite(Settings(data_dir=hosts.folder("b").root, meta=hosts.meta))
    assert hosts.folder("b").metadata.exists()


async def test_a_coordinator_that_was_told_another_log_than_the_nodes_begins_no_switch(
    hosts: Hosts,
) -> None:
    folder = hosts.folder("a").root
    async with hosts.opened("a", wal="") as store, hosts.opened("a", NODE):
        # It may open the metadata: an earlier release was told no log there.
        leading = await lead(store)
        asked = stored_altering(Settings(data_dir=folder, meta=hosts.meta), leading, alone=False)
        with pytest.raises(Refused, match="the log of the nodes is in Kafka, under the prefix log"):
            await asked.begin(KAFKA, leaves_history=False)
        settings = Settings(data_dir=folder, meta=hosts.meta, wal=KAFKA)
        assert (await stored_altering(settings, leading, alone=False).state()).founded == KAFKA


@pytest.mark.parametrize("use", [ALONE, NODE])
async def test_a_process_without_wal_begins_no_log_in_segment_files_beside_one_in_kafka(
    hosts: Hosts, use: MetadataUse
) -> None:
    """Where only a coordinator ran: nodes leave in their folders where the log is."""
    async with hosts.opened("a"):
        pass
    folder = hosts.folder("a")
    settings = Settings(data_dir=folder.root, meta=hosts.meta)
    async with hosts.opened("a", use, wal="") as store:
        with pytest.raises(CannotStart, match="start with --wal kafka://HOST:PORT/log"):
            async with log_storage(settings, folder, "c", store):
                pass
        # Not where there is a log already: a coordinator may have been told another one.
        (folder.log / "p0").mkdir(parents=True)
        async with log_storage(settings, folder, "c", store):
            pass


async def test_a_start_with_a_wrong_wal_leaves_no_trace_for_a_log_in_segment_files(
    hosts: Hosts,
) -> None:
    folder = hosts.folder("a")
    right = Settings(data_dir=folder.root, meta=hosts.meta)
    wrong = Settings(data_dir=folder.root, meta=hosts.meta, wal=KAFKA)
    async with hosts.opened("a", ALONE, wal=""):
        (folder.log / "p0").mkdir(parents=True)
    async with hosts.opened("a", ALONE) as store:
        with pytest.raises(CannotStart, match="has its log in segment files"):
            async with log_storage(wrong, folder, "c", store):
                pass
        leading = await lead(store)
        asked = stored_altering(wrong, leading, alone=False)
        with pytest.raises(Refused, match="the log of the nodes is in segment files"):
            await asked.begin(SEGMENTED, leaves_history=False)
        asked = stored_altering(right, leading, alone=False)
        assert (await asked.state()).founded == SEGMENTED
    async with hosts.opened("a", ALONE, wal="") as store, log_storage(right, folder, "c", store):
        pass
    assert "has not said where" in await hosts.refusal("c")
