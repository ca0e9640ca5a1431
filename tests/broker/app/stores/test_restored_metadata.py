"""Metadata in an etcd that is restored from a backup after its processes were killed."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from broker.app.process_errors import CannotStart
from broker.app.stores import etcd_metadata as module
from broker.app.stores.etcd_metadata import MetadataUse, RevisionNotes, etcd_metadata, read_note
from broker.data_folder import DataFolder
from broker.etcd.etcd_store import EtcdMetaStore
from broker.process_settings import Settings
from tests.local_etcd import EtcdServer

LATEST_S = 30.0
"""Against hanging only."""


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "etcd") as server:
        yield server


class Host:
    def __init__(self, root: Path, etcd: EtcdServer) -> None:
        root.mkdir()
        self.folder = DataFolder(root)
        self.settings = Settings(data_dir=root, meta=f"etcd://{etcd.address}/p")

    async def refusal(self) -> str:
        with pytest.raises(CannotStart) as caught:
            async with etcd_metadata(self.settings, self.folder, MetadataUse.ALONE):
                pass
        return str(caught.value)

    async def noted_by(self, store: EtcdMetaStore) -> str:
        """The note as a kill -9 leaves it, when it has all that was written."""
        revision = store.revision
        with anyio.fail_after(LATEST_S):
            while True:
                fields = json.loads(text := self.folder.metadata_note.read_text())
                if fields["revision"] >= revision and fields["beaten"] >= revision:
                    return text
                await anyio.sleep(module.NOTE_S)


async def test_a_backup_restored_after_kill_9_is_refused_until_it_is_accepted(
    etcd: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NOTE_S", 0.05)
    host = Host(tmp_path / "data", etcd)
    async with etcd_metadata(host.settings, host.folder, MetadataUse.ALONE) as store:
        await store.write({"a": b"before"})
        etcd.back_up()
        for number in range(20):
            await store.write({"a": b"%d" % number})
        noted = await host.noted_by(store)
    host.folder.metadata_note.write_text(noted)
    etcd.restore()
    assert "this data folder has seen it at" in await host.refusal()
    etcd.raise_revision(above=read_note(host.folder.metadata_note).revision)
    told = await host.refusal()
    assert "p/tidemark/beat was last written at revision" in told
    # Exactly what both texts say.
    assert "delete metadata.json in each data folder and in etcd the key p/tidemark/store" in told
    assert "stop all coordinators and nodes" in told
    host.folder.metadata_note.unlink()
    key = base64.b64encode(b"p/tidemark/store").decode()
    etcd.post("kv/deleterange", {"key": key})
    async with etcd_metadata(host.settings, host.folder, MetadataUse.ALONE) as store:
        entry = await store.get("a")
        assert entry is not None
        assert entry.value == b"before"


async def test_a_note_of_several_processes_never_falls_and_a_deleted_one_stays_deleted(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    host = Host(tmp_path / "data", etcd)
    path = host.folder.metadata_note
    async with etcd_metadata(host.settings, host.folder, MetadataUse.ALONE) as store:
        note = read_note(path)
        lagging = RevisionNotes(store, path)
        ahead = note.revision + 1000
        path.write_text(json.dumps(json.loads(path.read_text()) | {"revision": ahead}))
        await store.beat()
        await store.beat()
        lagging.note()
        assert read_note(path).revision == ahead
        assert read_note(path).beaten == store.beaten > note.beaten
        others = json.loads(path.read_text()) | {"owner": "another", "revision": 1}
        path.write_text(json.dumps(others))
        lagging.note()
        assert json.loads(path.read_text()) == others
        path.unlink()
    assert not path.exists()


async def test_what_a_refused_etcd_says_is_not_noted(
    etcd: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NOTE_S", 0.05)
    host = Host(tmp_path / "data", etcd)
    async with etcd_metadata(host.settings, host.folder, MetadataUse.NODE) as store:
        etcd.back_up()
        await store.beat()
        notes = RevisionNotes(store, host.folder.metadata_note)
        notes.note()
        noted = read_note(host.folder.metadata_note)
        etcd.restore()
        etcd.raise_revision(above=store.revision + 100)
        with anyio.fail_after(LATEST_S):
            await notes.keep()
        notes.note()
    assert read_note(host.folder.metadata_note) == noted
