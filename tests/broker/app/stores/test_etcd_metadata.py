"""Brokers whose metadata is in etcd: a data folder and a prefix belong together."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.app import CannotStart
from broker.backup.backup_failed import BackupFailed
from broker.backup.live_folder import LiveFolder
from broker.client import connect
from broker.config import load_settings
from broker.config_file import BadConfig
from broker.data_folder import DataFolder
from tests.broker_process import BrokerProcess, failed_start
from tests.local_broker import local_broker
from tests.local_etcd import EtcdServer

QUICK = {"pchannels": "2"}


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.mark.parametrize("nodes", ["0", "3"])
async def test_after_kill_9_all_is_there_again(
    etcd: EtcdServer, tmp_path: Path, nodes: str
) -> None:
    data, meta = tmp_path / "data", f"etcd://{etcd.address}/nodes{nodes}"
    with BrokerProcess(data, meta=meta, nodes=nodes, **QUICK) as broker:
        async with connect(broker.address) as log:
            await log.collections.create("trains", shards=2)
            landed = [await log.append("trains", b"%d" % it, key=b"%d" % it) for it in range(20)]
        broker.kill()
    assert not (data / "meta.sqlite").exists()
    with BrokerProcess(data, meta=meta, nodes=nodes, **QUICK) as broker:
        async with connect(broker.address) as log:
            assert [it.name for it in await log.collections.list()] == ["trains"]
            found = []
            async for batch in log.read("trains", start="all", until="now"):
                found += [(it.id, int(it.payload)) for it in batch.messages]
            assert sorted(found) == sorted((it.id, at) for at, it in enumerate(landed))
        revision = json.loads((data / "metadata.json").read_text())["revision"]
        assert broker.terminate() == 0
    assert json.loads((data / "metadata.json").read_text())["revision"] > revision


async def refusal(data: Path, **given: str | Path) -> str:
    """The sentence with which a broker does not start."""
    with pytest.raises(CannotStart) as caught:
        async with local_broker(data, pchannels=1, **given):
            pass
    return str(caught.value)


async def test_folder_and_prefix_are_not_mixed_up_with_others(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    data, meta = tmp_path / "data", f"etcd://{etcd.address}/mine"
    async with local_broker(data, pchannels=1, meta=meta):
        told = await refusal(tmp_path / "other", meta=meta)
        assert "is the metadata of a broker with another data folder; name another prefix" in told
    assert "pass --meta etcd://HOST:PORT/mine" in await refusal(data)
    told = await refusal(data, meta=f"etcd://{etcd.address}/yours")
    assert "is below the prefix mine in etcd, and meta names etcd://" in told
    note = data / "metadata.json"
    fields = json.loads(note.read_text())
    note.write_text(json.dumps(fields | {"revision": 10**9}))
    told = await refusal(data, meta=meta)
    assert "this data folder has seen it at 1000000000: it was restored from a backup" in told
    note.write_text("{")
    assert "metadata.json, which says where the metadata is" in await refusal(data, meta=meta)


async def test_a_folder_with_sqlite_stays_with_it(etcd: EtcdServer, tmp_path: Path) -> None:
    async with local_broker(tmp_path / "data", pchannels=1):
        pass
    told = await refusal(tmp_path / "data", meta=f"etcd://{etcd.address}/late")
    assert "is in meta.sqlite, and meta names etcd://" in told
    assert not (tmp_path / "data" / "metadata.json").exists()


async def test_a_backup_of_such_a_folder_is_refused(etcd: EtcdServer, tmp_path: Path) -> None:
    async with local_broker(tmp_path / "data", pchannels=1, meta=f"etcd://{etcd.address}/backup"):
        live = LiveFolder(DataFolder(tmp_path / "data"), "any")
        with pytest.raises(BackupFailed, match="in etcd, and a backup takes that of SQLite alone"):
            live.__enter__()


def test_an_etcd_that_is_not_there_is_told(tmp_path: Path) -> None:
    told = failed_start(tmp_path / "data", meta="etcd://127.0.0.1:1/p", **QUICK)
    assert "no answer from etcd://127.0.0.1:1/p for 6 s: nothing listens at 127.0.0.1:1" in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"meta": "http://a/p"}, "'http://a/p' is no URL of etcd"),
        ({"meta": "etcd://a"}, "names no prefix"),
        ({"meta": "etcd://me@a/p"}, "names user me, and meta_password_file is not set"),
        ({"meta": "etcd://a/p", "meta_password_file": "f"}, "meta names no user"),
        ({"meta_tls_ca": "f"}, "meta_tls_ca is set without meta"),
        ({"meta": "etcd://a/p", "meta_tls_cert": "f"}, "are set together or not at all"),
    ],
)
def test_settings_that_are_half_given_are_told(given: dict[str, str], told: str) -> None:
    with pytest.raises(BadConfig, match=told):
        load_settings(given)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"meta_tls_ca": Path("absent.pem")}, "absent.pem"),
        ({"meta_password_file": Path("absent")}, "cannot read meta_password_file absent"),
    ],
)
async def test_files_that_are_not_there_are_told(
    etcd: EtcdServer, tmp_path: Path, more: dict[str, Path], told: str
) -> None:
    user = "me@" if "meta_password_file" in more else ""
    meta = f"etcd://{user}{etcd.address}/files"
    assert told in await refusal(tmp_path / "data", meta=meta, **more)
