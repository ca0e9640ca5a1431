"""Switches of real processes to a real Kafka and back: what is refused, kept, and aborted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from benchmark.baselines.kafka_server import KafkaNode

from broker.app import CannotStart
from broker.app.switching.channel_switch import ChannelSwitch
from broker.backup.backup_failed import BackupFailed
from broker.backup.live_folder import LiveFolder
from broker.client import Client, connect
from broker.client.errors import InvalidArgument
from broker.data_folder import DataFolder
from tests.broker.app.switching.switch_programs import SECOND, copying_on, programs, until
from tests.broker_process import BrokerProcess, free_port
from tests.kafka_node import kafka_node, new_place
from tests.local_broker import local_broker
from tests.local_etcd import EtcdServer

__all__ = ["kafka_node"]


def url(node: KafkaNode) -> str:
    return f"{new_place(node).shown}?replication=1&sync=replicas"


async def test_kill_9_of_two_nodes_there_and_back_loses_and_doubles_nothing(
    kafka_node: KafkaNode, tmp_path: Path
) -> None:
    """Of one process, in every stage: tests/chaos/test_kill_nine_switches.py."""
    data, wal, listen = tmp_path / "data", url(kafka_node), f"127.0.0.1:{free_port()}"
    settings = {"pchannels": "2", "log_level": "warning", "nodes": "2"}
    broker = BrokerProcess(data, listen, **settings)
    try:
        async with programs(broker.address) as those:
            for target in (wal, ""):
                await those.log.admin.alter_wal(target)
                await until(those.log, SECOND)
                await anyio.to_thread.run_sync(broker.kill)
                broker = await anyio.to_thread.run_sync(
                    lambda: BrokerProcess(data, listen, **settings)
                )
                status = await until(those.log, ("done", "aborted"))
                assert (status.stage, status.place) == ("done", target)
                assert not any(it.trouble for it in status.channels)
            await those.until_all_are_through()
            assert (await those.log.admin.health()).warnings == ()
        assert broker.terminate() == 0
    finally:
        broker.kill()
    assert not (data / "kafka" / "prefix").exists()
    assert len(list((data / "wal").iterdir())) == 2


def backed_up(data: Path, cluster_id: str) -> LiveFolder:
    return LiveFolder(DataFolder(data), cluster_id)


async def test_a_transaction_goes_on_in_the_new_log(kafka_node: KafkaNode, tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("q")
        # By default it is over after 10 s, and a whole switch may take longer.
        async with log.txn("q", keepalive_s=600) as txn:
            await txn.append(b"before")
            await log.admin.alter_wal(url(kafka_node))
            await until(log, ("done",))
            await txn.append(b"after")
        found: list[bytes] = []
        async for batch in log.read("q", start="all", until="now"):
            found += [it.payload for it in batch.messages]
        assert found == [b"before", b"after"]


async def refusal(log: Client, target: str) -> str:
    with pytest.raises(InvalidArgument) as caught:
        await log.admin.alter_wal(target)
    return str(caught.value)


async def test_what_cannot_be_is_refused_and_the_log_stays(
    kafka_node: KafkaNode, tmp_path: Path
) -> None:
    wal = url(kafka_node)
    async with local_broker(tmp_path / "a", pchannels=1) as broker:  # noqa: SIM117
        async with connect(broker.address) as log:
            assert "in segment files already" in await refusal(log, "")
            assert "is not HOST or HOST:PORT" in await refusal(log, "kafka://x:/p")
            away = f"kafka://127.0.0.1:{free_port()}/p?replication=1"
            assert "the log stays where it is" in await refusal(log, away)
            with pytest.raises(InvalidArgument, match="nothing to abort"):
                await log.admin.abort_wal()
            assert (await log.admin.wal_status()).stage == ""
            with copying_on():
                await log.admin.alter_wal(wal)
                assert "is being switched to kafka://" in await refusal(log, "")
            await until(log, ("done",))
            assert "already" in await refusal(log, wal)
            assert "--to segmented" in await refusal(log, url(kafka_node))
    # Its settings say segment files still; the metadata knows better, and so do other releases.
    async with local_broker(tmp_path / "a", pchannels=1) as broker:  # noqa: SIM117
        async with connect(broker.address) as log:
            assert (await log.admin.wal_status()).place == wal
    assert (tmp_path / "a" / "kafka" / "prefix").read_text().strip() in wal
    with pytest.raises(CannotStart, match="belongs to cluster"):
        async with local_broker(tmp_path / "b", pchannels=1, wal=wal):
            pass


@contextmanager
def keeping_copies() -> Iterator[None]:
    """No switch that is aborted ends; else it may be over before it is looked at."""

    async def not_now(switch: ChannelSwitch, *_: object) -> bool:
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChannelSwitch, "_discard", not_now)
        yield


async def test_a_switch_is_aborted_while_it_copies(kafka_node: KafkaNode, tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("q")
        await log.append("q", b"before")
        own = (await log.admin.health()).cluster_id
        with copying_on(), keeping_copies():
            await log.admin.alter_wal(url(kafka_node))
            status = await log.admin.abort_wal()
            assert status.stage == "aborting"
            with (
                pytest.raises(BackupFailed, match="is being switched"),
                backed_up(tmp_path, own),
            ):
                pass
        status = await until(log, ("aborted",))
        assert status.place == ""
        with backed_up(tmp_path, own):
            pass
        await log.append("q", b"after")
        found: list[bytes] = []
        async for batch in log.read("q", start="all", until="now"):
            found += [it.payload for it in batch.messages]
        assert found == [b"before", b"after"]


async def test_with_the_metadata_in_etcd_a_switch_goes_there_and_back(
    kafka_node: KafkaNode, tmp_path: Path
) -> None:
    wal = url(kafka_node)
    with EtcdServer(tmp_path / "etcd") as etcd:
        given = {"pchannels": 1, "meta": f"etcd://{etcd.address}/p"}
        for place, target in (("", wal), (wal, ""), ("", "")):
            # The settings say what they said at first, or what the log was switched to.
            async with local_broker(tmp_path / "a", wal=place, **given) as broker:  # noqa: SIM117
                async with connect(broker.address) as log:
                    await log.collections.create("q", exist_ok=True)
                    await log.append("q", b"one")
                    if place != target:
                        await log.admin.alter_wal(target)
                        assert (await until(log, ("done",))).place == target
        async with local_broker(tmp_path / "a", wal=wal, **given) as broker:  # noqa: SIM117
            async with connect(broker.address) as log:
                found = [it async for it in log.read("q", start="all", until="now")]
                assert sum(len(it.messages) for it in found) == 3
