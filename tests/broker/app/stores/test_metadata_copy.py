"""The metadata of a stopped broker moves to etcd and back, and an interrupted move is finished."""

import base64
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
import pytest

from broker.app import CannotStart
from broker.app.stores import metadata_copy
from broker.app.stores.metadata_copy import KEPT, to_etcd, to_sqlite
from broker.cli.copying_metadata import copy_metadata
from broker.client import connect
from broker.data_folder import DataFolderError, hold, hold_node
from broker.etcd.etcd_store import EtcdMetaStore
from broker.etcd.place import etcd_place
from broker.meta.sqlite import SqliteMetaStore
from broker.meta.sqlite_snapshot import entries_of
from broker.ports.meta import MetaStore
from broker.process_settings import Settings
from broker.wal.kafka.topic_ids import TOPIC_PREFIX, StoredTopicIds, TopicIdFiles
from tests.local_broker import local_broker
from tests.local_etcd import EtcdServer


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def meta(etcd: EtcdServer, tmp_path: Path) -> str:
    return f"etcd://{etcd.address}/{tmp_path.name}"


async def opened(meta: str, owner: str) -> EtcdMetaStore:
    """With the patience for a busy machine."""
    return await EtcdMetaStore.open(etcd_place(meta), owner=owner, call_s=30)


async def used(data: Path, collection: str, **given: str) -> list[str]:
    """The collections that a broker on this folder has, one more among them."""
    async with local_broker(data, pchannels=1, **given) as broker, connect(broker.address) as log:
        await log.collections.create(collection, shards=1)
        await log.append(collection, b"1")
        return sorted([it.name for it in await log.collections.list()])


async def written_together(data: Path, meta: str = "") -> list[list[str]]:
    """The keys, those of one write together, in the order of the writes."""
    if meta:
        owner = json.loads((data / "metadata.json").read_text())["owner"]
        store: MetaStore = await opened(meta, owner)
    else:
        store = await SqliteMetaStore.open(data / KEPT)
    entries = sorted(await store.list("", limit=1000), key=lambda it: it[1].revision)
    await store.close()
    return [[key for key, _ in some] for _, some in groupby(entries, lambda it: it[1].revision)]


async def refusal(data: Path, **given: str) -> str:
    with pytest.raises(CannotStart) as caught:
        async with local_broker(data, pchannels=1, **given):
            pass
    return str(caught.value)


def settings(data: Path, meta: str) -> Settings:
    return Settings(data_dir=data, meta=meta)


async def test_there_and_back_again_with_a_broker_at_work_between(data: Path, meta: str) -> None:
    await used(data, "before")
    source = entries_of(data / "meta.sqlite")
    copied = await to_etcd(settings(data, meta))
    assert copied.entries == len(source)
    assert not (data / "meta.sqlite").exists()
    assert entries_of(data / KEPT) == source
    assert await written_together(data, meta) == await written_together(data)
    assert await used(data, "between", meta=meta) == ["before", "between"]
    await to_sqlite(settings(data, meta))
    assert not (data / "metadata.json").exists()
    assert await used(data, "after") == ["after", "before", "between"]


async def test_a_copy_to_etcd_that_was_interrupted_is_repeated(data: Path, meta: str) -> None:
    await used(data, "before")
    source = entries_of(data / "meta.sqlite")
    await to_etcd(settings(data, meta))
    # As it is after a kill in the middle: both are there, and etcd is neither whole nor clean.
    (data / KEPT).rename(data / "meta.sqlite")
    note = json.loads((data / "metadata.json").read_text())
    (data / "metadata.json").write_text(json.dumps(note | {"copying": True}))
    async with await opened(meta, note["owner"]) as store:
        await store.write({"left over": b"1"}, deletes=[min(source)])
    assert "has not finished: repeat `tidemark meta copy`" in await refusal(data)
    assert "tidemark meta copy" in await refusal(data, meta=meta)
    with pytest.raises(CannotStart, match="to etcd has not finished: repeat it"):
        await to_sqlite(settings(data, meta))
    await to_etcd(settings(data, meta))
    async with await opened(meta, note["owner"]) as store:
        found = await store.list("", limit=1000)
        assert {key: entry.value for key, entry in found} == source
    assert await used(data, "after", meta=meta) == ["after", "before"]


async def test_a_copy_from_etcd_that_was_interrupted_is_repeated(data: Path, meta: str) -> None:
    await used(data, "before", meta=meta)
    note = (data / "metadata.json").read_text()
    (data / "meta.sqlite.draft").write_bytes(b"half of a file")
    await to_sqlite(settings(data, meta))
    (data / "metadata.json").write_text(note)  # as before the last step
    assert "has not finished" in await refusal(data)
    await to_sqlite(settings(data, meta))
    assert await used(data, "after") == ["after", "before"]


async def test_the_ids_of_topics_in_kafka_go_where_a_broker_looks_for_them(
    data: Path, meta: str
) -> None:
    """One without them would take a topic that was made anew for an empty log."""
    await used(data, "before", meta=meta)
    owner = json.loads((data / "metadata.json").read_text())["owner"]
    files, key = TopicIdFiles(data / "kafka"), f"{TOPIC_PREFIX}log.p_0"
    async with await opened(meta, owner) as store:
        await store.write({key: b"first"})
    await to_sqlite(settings(data, meta))
    assert await files.known("log.p_0") == "first"
    assert key not in entries_of(data / "meta.sqlite"), "nothing there would keep it up to date"
    await files.remember("log.p_0", "second")
    await to_etcd(settings(data, f"{meta}-new"))
    owner = json.loads((data / "metadata.json").read_text())["owner"]
    async with await opened(f"{meta}-new", owner) as store:
        assert await StoredTopicIds(store, files, "").known("log.p_0") == "second"


async def test_ids_that_an_earlier_release_left_beside_the_files_are_not_used(
    data: Path, meta: str
) -> None:
    await used(data, "before")
    async with await SqliteMetaStore.open(data / "meta.sqlite") as sqlite:
        await sqlite.write({f"{TOPIC_PREFIX}log.p_0": b"of long ago"})
    files = TopicIdFiles(data / "kafka")
    await files.remember("log.p_0", "now")
    await to_etcd(settings(data, meta))
    owner = json.loads((data / "metadata.json").read_text())["owner"]
    async with await opened(meta, owner) as store:
        assert await StoredTopicIds(store, files, "").known("log.p_0") == "now"


async def test_what_cannot_be_copied_is_told_and_nothing_changes(
    data: Path, meta: str, tmp_path: Path
) -> None:
    await used(data, "mine")
    with pytest.raises(CannotStart, match="nothing listens at"):
        await to_etcd(settings(data, "etcd://127.0.0.1:1/p"))
    with pytest.raises(CannotStart, match="is not in etcd"):
        await to_sqlite(settings(data, meta))
    await used(tmp_path / "theirs", "theirs", meta=meta)
    with pytest.raises(CannotStart, match="a broker with another data folder"):
        await to_etcd(settings(data, meta))
    with pytest.raises(CannotStart, match=r"has no meta\.sqlite to copy"):
        await to_etcd(settings(tmp_path / "theirs", meta))
    with hold(data), pytest.raises(DataFolderError, match="is in use"):
        await to_etcd(settings(data, meta))
    with hold_node(data, 3), pytest.raises(DataFolderError, match="is in use"):
        await to_etcd(settings(data, meta))
    assert await used(data, "more") == ["mine", "more"]


async def test_entries_of_nobody_known_are_not_overwritten(data: Path, meta: str) -> None:
    await used(data, "mine")
    async with await opened(meta, "somebody") as store:
        await store.write({"theirs": b"1"})
    etcd_key = f"{etcd_place(meta).prefix}/tidemark/store"
    await forget(meta, etcd_key)
    with pytest.raises(CannotStart, match="has entries already, such as theirs: name a new prefix"):
        await to_etcd(settings(data, meta))
    assert await used(data, "more") == ["mine", "more"]
    await to_etcd(settings(data, f"{meta}-new"))


async def forget(meta: str, key: str) -> None:
    """Delete a key as an operator does."""
    server = EtcdServer(Path("unused"))
    server.port = etcd_place(meta).endpoints[0][1]
    server.post("kv/deleterange", {"key": base64.b64encode(key.encode()).decode()})


def test_the_command_says_what_it_did_or_why_not(
    data: Path, meta: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    with pytest.raises(SystemExit) as ended:
        copy_metadata({"data_dir": data}, back=False, as_json=False)
    assert ended.value.code == 2
    assert "name etcd with --meta etcd://HOST:PORT/PREFIX" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        copy_metadata({"data_dir": data, "meta": meta}, back=False, as_json=False)
    assert ended.value.code == 1
    assert "has no meta.sqlite to copy" in capsys.readouterr().err
    anyio.run(used, data, "mine")
    copy_metadata({"data_dir": data, "meta": meta}, back=False, as_json=False)
    assert capsys.readouterr().out.startswith("copied and compared: ")
    copy_metadata({"data_dir": data, "meta": meta}, back=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["target"] == str(data / "meta.sqlite")


ELSEWHERE = "coordinator/0123456789abcdef/0-0123"
"""As a coordinator of another host is announced, which leads or stands by."""


async def test_nothing_is_copied_back_while_a_coordinator_of_another_host_runs(
    data: Path, meta: str
) -> None:
    await used(data, "before", meta=meta)
    owner = json.loads((data / "metadata.json").read_text())["owner"]
    async with await opened(meta, owner) as store, store.announced(ELSEWHERE, b"10.0.0.2:19531"):
        assert "run on other hosts (10.0.0.2:19531)" in await refusal(data, meta=meta)
        with pytest.raises(CannotStart, match="run on other hosts"):
            await to_sqlite(settings(data, meta))
    assert (data / "metadata.json").exists()
    assert not (data / "meta.sqlite").exists()


async def test_what_a_coordinator_of_another_host_writes_is_not_overwritten(
    data: Path, meta: str
) -> None:
    await used(data, "before", meta=meta)
    note = (data / "metadata.json").read_text()
    await to_sqlite(settings(data, meta))
    (data / "metadata.json").write_text(note)  # killed before its last step
    # Which is what the refusal says to do next.
    assert "tidemark meta copy" in await refusal(data, meta=meta)
    async with await opened(meta, json.loads(note)["owner"]) as store:
        async with store.announced(ELSEWHERE, b"10.0.0.2:19531"):
            await store.write({"collection/late": b"1"})
            with pytest.raises(CannotStart, match="run on other hosts"):
                await to_etcd(settings(data, meta))
        assert await store.get("collection/late") is not None


async def test_nothing_is_copied_back_of_what_changes_meanwhile(
    data: Path, meta: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node of another host takes a term without its coordinator, or one has just started."""
    await used(data, "before", meta=meta)
    owner = json.loads((data / "metadata.json").read_text())["owner"]
    compare = metadata_copy._compare
    async with await opened(meta, owner) as other, AsyncExitStack() as announced:

        async def compared(*given: Any) -> None:
            await compare(*given)
            await meanwhile()

        async def written() -> None:
            await other.write({"collection/late": b"1"})

        async def started() -> None:
            await announced.enter_async_context(other.announced(ELSEWHERE, b"10.0.0.2:19531"))

        monkeypatch.setattr(metadata_copy, "_compare", compared)
        meanwhile = written
        with pytest.raises(CannotStart, match="has changed meanwhile"):
            await to_sqlite(settings(data, meta))
        meanwhile = started
        with pytest.raises(CannotStart, match="run on other hosts"):
            await to_sqlite(settings(data, meta))
    assert not (data / "meta.sqlite").exists()
