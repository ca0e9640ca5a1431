"""Folders whose store is not in the etcd that answers: another one, or one that was emptied."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.app.process_errors import CannotStart
from broker.app.storage import metadata
from broker.app.stores.etcd_metadata import MetadataUse
from broker.data_folder import DataFolder
from broker.etcd.etcd_store import EtcdMetaStore
from broker.process_settings import Settings
from tests.local_etcd import EtcdServer

ALONE, CANDIDATE, NODE = MetadataUse.ALONE, MetadataUse.CANDIDATE, MetadataUse.NODE
KAFKA = "kafka://127.0.0.1:1/log"
"""Opening the metadata asks no Kafka."""
UNTOLD = {"revision": 0, "beaten": 0}
"""What an earlier release left in the folder of a node."""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


class Hosts:
    """Folders of several hosts, and one prefix."""

    def __init__(self, root: Path, etcd: EtcdServer) -> None:
        self.root = root
        self._etcd = etcd
        self._prefix = root.name
        ends = (f"{self._prefix}/", f"{self._prefix}0")
        start, end = [base64.b64encode(it.encode()).decode() for it in ends]
        self._all = {"key": start, "range_end": end}

    @asynccontextmanager
    async def opened(
        self, host: str, use: MetadataUse = CANDIDATE, wal: str = KAFKA
    ) -> AsyncIterator[EtcdMetaStore]:
        folder = self.folder(host)
        meta = f"etcd://{self._etcd.address}/{self._prefix}"
        settings = Settings(data_dir=folder.root, meta=meta, wal=wal)
        async with metadata(settings, folder, use) as store:
            assert isinstance(store, EtcdMetaStore)
            yield store

    async def start(self, host: str, use: MetadataUse = CANDIDATE, wal: str = KAFKA) -> None:
        async with self.opened(host, use, wal):
            pass

    async def refusal(self, host: str, use: MetadataUse = CANDIDATE, wal: str = KAFKA) -> str:
        with pytest.raises(CannotStart) as caught:
            await self.start(host, use, wal)
        return str(caught.value)

    def folder(self, host: str) -> DataFolder:
        (self.root / host).mkdir(exist_ok=True)
        return DataFolder(self.root / host)

    def change_note(self, host: str, **fields: object) -> None:
        path = self.folder(host).metadata_note
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    def keys(self) -> list[str]:
        """What etcd has below the prefix."""
        found = self._etcd.post("kv/range", self._all).get("kvs", ())
        return [base64.b64decode(it["key"]).decode() for it in found]

    def empty(self) -> None:
        """As an etcd where nobody has written yet, whose revision is high enough."""
        self._etcd.post("kv/deleterange", self._all)

    def delete_record(self) -> None:
        key = base64.b64encode(f"{self._prefix}/tidemark/store".encode()).decode()
        self._etcd.post("kv/deleterange", {"key": key})


@pytest.fixture
def hosts(tmp_path: Path, etcd: EtcdServer) -> Hosts:
    return Hosts(tmp_path, etcd)


@pytest.mark.parametrize("use", [CANDIDATE, NODE])
@pytest.mark.parametrize("noted", [{}, UNTOLD])
async def test_a_joined_folder_makes_no_store_in_an_etcd_that_has_none(
    hosts: Hosts, use: MetadataUse, noted: dict[str, int]
) -> None:
    async with hosts.opened("a"):
        await hosts.start("b", use)
    hosts.change_note("b", **noted)
    hosts.empty()
    told = await hosts.refusal("b", use)
    assert "has no record of a store, and this data folder has been used with one there" in told
    assert "check the endpoints in --meta" in told
    assert not hosts.keys()


@pytest.mark.parametrize(
    ("use", "wal"), [(ALONE, ""), (NODE, ""), (CANDIDATE, KAFKA), (NODE, KAFKA)]
)
async def test_a_founding_folder_makes_a_store_once(
    hosts: Hosts, use: MetadataUse, wal: str
) -> None:
    await hosts.start("a", use, wal)
    hosts.empty()
    assert "has no record of a store" in await hosts.refusal("a", use, wal)
    assert not hosts.keys()


async def test_an_emptied_etcd_is_begun_anew_as_the_text_says(hosts: Hosts) -> None:
    async with hosts.opened("a"):
        await hosts.start("b", NODE)
    hosts.empty()
    assert "delete metadata.json in each data folder" in await hosts.refusal("a")
    for host in "ab":
        hosts.folder(host).metadata_note.unlink()
    async with hosts.opened("a"):
        await hosts.start("b", NODE)


async def test_a_first_start_that_was_killed_before_its_store_was_made_is_repeated(
    hosts: Hosts,
) -> None:
    await hosts.start("a", ALONE, "")
    hosts.change_note("a", **UNTOLD)
    hosts.empty()
    await hosts.start("a", ALONE, "")


@pytest.mark.parametrize("use", [CANDIDATE, NODE])
async def test_a_store_whose_record_alone_was_deleted_goes_on(
    hosts: Hosts, use: MetadataUse
) -> None:
    """As the text says of keys that were copied to another etcd."""
    async with hosts.opened("a") as store:
        await store.write({"k": b"1"})
        await hosts.start("b", use)
    hosts.delete_record()
    async with hosts.opened("b", use) as store:
        found = await store.get("k")
        assert found is not None
        assert found.value == b"1"
    await hosts.start("a")
