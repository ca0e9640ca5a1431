"""Brokers whose log is in Kafka: real processes, and folders that are not mixed up with others."""

import asyncio
import sys
from pathlib import Path

import pytest
from benchmark.baselines.kafka_server import KafkaNode

from broker.app import CannotStart
from broker.backup.backup_failed import BackupFailed
from broker.backup.live_folder import LiveFolder
from broker.client import Appended, OutcomeUnknown, connect
from broker.config import load_settings
from broker.config_file import BadConfig
from broker.data_folder import DataFolder
from tests.broker_process import BrokerProcess
from tests.kafka_node import kafka_node, new_place
from tests.local_broker import local_broker
from tests.roles_processes import until

__all__ = ["kafka_node"]
QUICK = {"pchannels": "2"}


def url(node: KafkaNode) -> str:
    return f"{new_place(node).shown}?replication=1&sync=replicas"


@pytest.mark.parametrize("nodes", ["0", "2"])
async def test_after_kill_9_of_kafka_and_of_the_broker_all_is_there_again(
    kafka_node: KafkaNode, tmp_path: Path, nodes: str
) -> None:
    data, wal = tmp_path / "data", url(kafka_node)
    sent = [b"%d" % it for it in range(40)]

    def restart() -> None:
        kafka_node.kill()
        kafka_node.start()

    with BrokerProcess(data, wal=wal, nodes=nodes, **QUICK) as broker:
        async with connect(broker.address) as log:
            await log.collections.create("trains", shards=2)
            landed = [await log.append("trains", it, key=it) for it in sent[:20]]
            # An append waits until Kafka is back, if that is soon enough.
            appends = [log.append("trains", it, key=it) for it in sent[20:]]
            appending = asyncio.gather(*appends, return_exceptions=True)
            answers = (await asyncio.gather(appending, asyncio.to_thread(restart)))[0]
            assert all(isinstance(it, Appended | OutcomeUnknown) for it in answers), answers
        broker.kill()
    assert not (data / "wal").exists()
    with BrokerProcess(data, wal=wal, nodes=nodes, **QUICK) as broker:
        async with connect(broker.address) as log:
            assert (await log.admin.health()).warnings == ()
            found: list[tuple[int, bytes]] = []
            async for batch in log.read("trains", start="all", until="now"):
                found += [(it.id, it.payload) for it in batch.messages]
            told = zip([*landed, *answers], sent, strict=True)
            assert {(it.id, body) for it, body in told if isinstance(it, Appended)} <= set(found)
            assert len(found) == len({body for _, body in found}) >= 20, "each once"
        assert broker.terminate() == 0


async def refusal(data: Path, **given: str) -> str:
    """The sentence with which a broker does not start."""
    with pytest.raises(CannotStart) as caught:
        async with local_broker(data, pchannels=1, **given):
            pass
    return str(caught.value)


async def test_health_names_the_logs_whose_kafka_is_away_until_it_is_back(
    kafka_node: KafkaNode, tmp_path: Path
) -> None:
    wal = url(kafka_node)
    with BrokerProcess(tmp_path / "data", wal=wal, **QUICK) as broker:
        async with connect(broker.address) as log:
            await log.collections.create("trains", shards=1)
            await log.append("trains", b"before")
            assert (await log.admin.health()).warnings == ()
            kafka_node.kill()

            async def told() -> bool:
                found = (await log.admin.health()).warnings
                return any(f"log in {wal.partition('?')[0]}: " in it for it in found)

            async def silent() -> bool:
                return (await log.admin.health()).warnings == ()

            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(log.append("trains", b"meanwhile", deadline_s=300))
                await until(told)
                await asyncio.to_thread(kafka_node.start)
                try:
                    await waiting
                except OutcomeUnknown:
                    pass  # it may be there
            await log.append("trains", b"after", deadline_s=60)
            await until(silent)
        assert broker.terminate() == 0


async def test_folder_prefix_and_cluster_are_not_mixed_up_with_others(
    kafka_node: KafkaNode, tmp_path: Path
) -> None:
    wal = url(kafka_node)
    async with local_broker(tmp_path / "a", pchannels=1, wal=wal):
        pass
    told = await refusal(tmp_path / "a")
    assert "is in Kafka, under the prefix" in told
    assert "start with --wal kafka://" in told
    assert "not other" in await refusal(tmp_path / "a", wal="kafka://127.0.0.1:1/other")
    assert "belongs to cluster" in await refusal(tmp_path / "b", wal=wal)
    async with local_broker(tmp_path / "c", pchannels=1):
        pass
    assert "has its log in segment files" in await refusal(tmp_path / "c", wal=wal)
    with (
        pytest.raises(BackupFailed, match="is in Kafka"),
        LiveFolder(DataFolder(tmp_path / "a"), ""),
    ):
        pass


async def test_without_the_client_a_start_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "broker.wal.kafka.kafka_wal", raising=False)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for name in [it for it in sys.modules if it.startswith("broker.wal.kafka.")]:
        monkeypatch.delitem(sys.modules, name)
    told = await refusal(tmp_path, wal="kafka://127.0.0.1:1/p")
    assert "install it with: pip install '.[kafka]' in Tidemark's folder" in told


async def test_a_file_for_the_client_may_not_change_what_the_log_depends_on(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    for text, said in (
        ("acks=1\n", "line 1: acks is not yours to set"),
        ("# TLS\nssl\n", "line 2: 'ssl' is not NAME=VALUE"),
        ("no.such.property=1\n", "No such configuration property"),
    ):
        file.write_text(text)
        assert said in await refusal(tmp_path / "a", wal=f"kafka://127.0.0.1:1/p?client={file}")
    file.unlink()
    told = await refusal(tmp_path / "a", wal=f"kafka://127.0.0.1:1/p?client={file}")
    assert "cannot read" in told


def test_a_wrong_url_is_refused_before_anything_is_used() -> None:
    with pytest.raises(
        BadConfig, match=r"setting wal: .* the server 'x:' is not HOST or HOST:PORT"
    ):
        load_settings({"wal": "kafka://x:/p"})
