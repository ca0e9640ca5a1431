"""Real processes and a real Kafka: kill -9 in each stage, while programs append and read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from benchmark.baselines.kafka_server import KafkaNode

from broker.app import CannotStart
from broker.backup.backup_failed import BackupFailed
from broker.backup.live_folder import LiveFolder
from broker.client import Appended, Client, DeadlineExceeded, OutcomeUnknown, TidemarkError, connect
from broker.client.cluster import WalStatus
from broker.client.errors import InvalidArgument
from broker.data_folder import DataFolder
from tests.broker_process import BrokerProcess, free_port
from tests.kafka_node import kafka_node, new_place
from tests.local_broker import local_broker
from tests.local_etcd import EtcdServer

__all__ = ["kafka_node"]
POLL_S = 0.02
THIRD = ("dropping", "done")
SECOND = ("switching", *THIRD)
FIRST = ("copying", *SECOND)
"""Stages: a kill comes in the first of them, or later if that one was over at once."""
Kills = tuple[tuple[str, ...], ...]
END_S = 120.0


def url(node: KafkaNode) -> str:
    return f"{new_place(node).shown}?replication=1&sync=replicas"


class Programs:
    """One that appends, one that reads, and a member of a group; they survive the broker."""

    def __init__(self, log: Client) -> None:
        self.log = log
        self.landed: dict[int, Appended] = {}
        self.sent: dict[int, bytes] = {}
        self.read: list[tuple[int, bytes]] = []
        self.acknowledged: set[bytes] = set()
        self.stopping = False

    async def append(self) -> None:
        number = 0
        while not self.stopping:
            sent = b"%d" % number
            number += 1
            # Its answer died with the broker, or that was away for longer than appends wait.
            with suppress(OutcomeUnknown, DeadlineExceeded):
                self.landed[number] = await self.log.append("trains", sent, key=sent)
                self.sent[number] = sent

    async def read_on(self) -> None:
        async for batch in self.log.read("trains", start="all"):
            self.read += [(it.id, it.payload) for it in batch.messages]

    async def work(self) -> None:
        async with self.log.group("workers").join("trains") as member:
            async for batch in member:
                self.acknowledged.update(it.payload for it in batch.messages)
                with suppress(TidemarkError):  # then they come again
                    await batch.ack()

    def through(self, wanted: set[tuple[int, bytes]]) -> bool:
        return wanted <= set(self.read) and set(self.sent.values()) <= self.acknowledged

    async def until_all_are_through(self) -> None:
        self.stopping = True
        wanted = {(int(it.id), self.sent[number]) for number, it in self.landed.items()}
        with anyio.fail_after(END_S):
            while not self.through(wanted):  # noqa: ASYNC110 - of a broker
                await anyio.sleep(POLL_S)
        payloads = [payload for _, payload in self.read]
        assert len(payloads) == len(set(payloads)), "each once"


@asynccontextmanager
async def programs(address: str) -> AsyncIterator[Programs]:
    async with connect(address) as log, anyio.create_task_group() as tasks:
        await log.collections.create("trains", shards=2)
        await log.group("workers").create("trains", start="all")
        those = Programs(log)
        for each in (those.append, those.read_on, those.work):
            tasks.start_soon(each)
        yield those
        tasks.cancel_scope.cancel()


async def until(log: Client, stages: tuple[str, ...]) -> WalStatus:
    with anyio.fail_after(END_S):
        while True:
            try:
                status = await log.admin.wal_status()
            except TidemarkError:
                continue  # of a broker that starts
            if status.stage in stages:
                return status
            await anyio.sleep(POLL_S)


@pytest.mark.parametrize(
    ("nodes", "there", "back"),
    [
        ("0", (FIRST, SECOND, THIRD), (SECOND,)),
        ("2", (SECOND,), ()),
    ],
    ids=["one process", "two nodes"],
)
async def test_kill_9_in_each_stage_there_and_back_loses_and_doubles_nothing(
    kafka_node: KafkaNode, tmp_path: Path, nodes: str, there: Kills, back: Kills
) -> None:
    data, wal, listen = tmp_path / "data", url(kafka_node), f"127.0.0.1:{free_port()}"
    settings = {"pchannels": "2", "log_level": "warning", "nodes": nodes}
    broker = BrokerProcess(data, listen, **settings)
    try:
        async with programs(broker.address) as those:
            for target, kills in ((wal, there), ("", back)):
                await those.log.admin.alter_wal(target)
                for stages in kills:
                    await until(those.log, stages)
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
        async with log.txn("q") as txn:
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


async def test_a_switch_is_aborted_while_it_copies(kafka_node: KafkaNode, tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("q")
        await log.append("q", b"before")
        await log.admin.alter_wal(url(kafka_node))
        status = await log.admin.abort_wal()
        assert status.stage == "aborting"
        own = (await log.admin.health()).cluster_id
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
