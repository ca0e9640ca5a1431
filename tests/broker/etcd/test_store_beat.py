"""A restored etcd is refused even where its revision is higher than it ever was."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.etcd.etcd_errors import StoreWentBack
from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.place import etcd_place
from tests.broker.etcd.lossy_member import lossy
from tests.local_etcd import EtcdServer

BEAT = "tidemark/tidemark/beat"


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "etcd") as server:
        yield server


async def opened(etcd: EtcdServer, revision: int = 0, beaten: int = 0) -> EtcdMetaStore:
    place = etcd_place(f"etcd://{etcd.address}/tidemark")
    return await EtcdMetaStore.open(place, owner="me", revision=revision, beaten=beaten, call_s=30)


async def test_a_restored_etcd_with_a_raised_revision_is_refused_at_the_start_until_accepted(
    etcd: EtcdServer,
) -> None:
    async with await opened(etcd) as store:
        await store.write({"a": b"1"})
        etcd.back_up()
        await store.write({"a": b"2"})
        await store.beat()
        revision, beaten = store.revision, store.beaten
        # Nothing of it is ended in order: all machines lose their power.
        etcd.restore()
        etcd.raise_revision(above=revision)
        for _ in range(2):  # a refused opening leaves nothing that would let the next one pass
            with pytest.raises(StoreWentBack, match=rf"{BEAT} was last written at revision \d+ in"):
                await opened(etcd, revision, beaten)
        # As the text says: without the numbers of metadata.json.
        async with await opened(etcd) as older:
            entry = await older.get("a")
            assert entry is not None
            assert entry.value == b"1"
            assert older.beaten < beaten


async def test_a_restore_with_a_raised_revision_is_noticed_by_what_runs(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        await store.write({"a": b"1"})
        etcd.back_up()
        await store.beat()
        etcd.restore()
        etcd.raise_revision(above=store.revision)
        with pytest.raises(StoreWentBack, match="restored from a backup, as with --bump-revision"):
            await store.beat()
        with pytest.raises(StoreWentBack):
            await store.get("a")
        with pytest.raises(StoreWentBack):
            await store.write({"a": b"2"})


async def test_a_deleted_beat_is_told_as_one(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        etcd.post("kv/deleterange", {"key": base64.b64encode(BEAT.encode()).decode()})
        with pytest.raises(StoreWentBack, match=rf"{BEAT} is not there .* or the key was deleted"):
            await store.beat()


async def test_beats_of_several_processes_do_not_disturb_each_other(etcd: EtcdServer) -> None:
    async with await opened(etcd) as one, await opened(etcd) as other:
        seen = [one.beaten, other.beaten]
        for store in (one, other, other, one, other, one, one):
            await store.beat()
            assert store.beaten >= max(seen)
            seen.append(store.beaten)
        assert seen[-1] > seen[1]


async def test_a_beat_whose_answer_is_lost_refuses_nothing(etcd: EtcdServer) -> None:
    async with await opened(etcd) as store:
        fails = iter(["after", "after", "before", "after"])
        lossy(store, lambda: next(fails, ""))
        before = store.beaten
        for _ in range(3):
            await store.beat()
        assert store.beaten > before
        await store.write({"a": b"1"})
