"""Processes that find each other, and are found by Milvus's clients, by what is in etcd."""

import base64
import json
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from broker.client import Deadlines, connect
from tests.broker_process import BrokerProcess
from tests.local_etcd import EtcdServer
from tests.roles_processes import GUARD_S, RoleProcess, owners, until

PATIENT = Deadlines(connect_s=GUARD_S)
ROOT = "by-dev"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


def sessions(etcd: EtcdServer, root: str) -> dict[str, dict[str, Any]]:
    """What Milvus's clients would find, by the end of its key."""
    start, end = f"{root}/meta/session/", f"{root}/meta/session0"
    coded = [base64.b64encode(it.encode()).decode() for it in (start, end)]
    kvs = etcd.post("kv/range", {"key": coded[0], "range_end": coded[1]}).get("kvs", [])
    values = {
        base64.b64decode(it["key"]).decode().removeprefix(start): json.loads(
            base64.b64decode(it["value"])
        )
        for it in kvs
    }
    values.pop("id", None)
    return values


async def test_nodes_find_the_leader_in_etcd_and_follow_it_to_addresses_nobody_told_them(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    meta, root = f"etcd://{etcd.address}/{tmp_path.name}", f"{ROOT}-followed"
    common = ("--data-dir", str(tmp_path / "data"), "--meta", meta, "--listen", "127.0.0.1:0")
    settings = {"pchannels": "2", "milvus_root": root}

    def addresses() -> dict[str, str]:
        return {name: str(it["Address"]) for name, it in sessions(etcd, root).items()}

    async with AsyncExitStack() as running:

        def start(*words: str) -> RoleProcess:
            return running.enter_context(RoleProcess(*words, *common, **settings))

        first = start("coordinator")
        address = await first.ready()
        workers = [start("node", "--node-id", str(number)) for number in (1, 2)]
        served = [await it.ready() for it in workers]
        nodes = {f"streamingnode-{it}": at for it, at in enumerate(served, 1)}

        async def all_announced() -> bool:
            return addresses() == {"mixcoord": address, **nodes}

        await until(all_announced)
        log = await running.enter_async_context(connect(address, deadlines=PATIENT))
        vchannel = (await log.collections.create("rows", shards=1)).vchannels[0]
        await log.append(vchannel, b"before")

        second = start("coordinator")
        following = await second.stands_by()
        os.kill(first.pid, signal.SIGKILL)
        assert "tidemark ready" in await second.first_line()
        other = await running.enter_async_context(connect(following, deadlines=PATIENT))
        await other.append(vchannel, b"after", deadline_s=GUARD_S)

        async def replaced() -> bool:
            return addresses() == {"mixcoord": following, **nodes}

        await until(replaced)
        os.kill(workers[0].pid, signal.SIGKILL)
        nodes.pop("streamingnode-1")
        await until(replaced)

        async def moved() -> bool:
            return set((await owners(other)).values()) == {2}

        await until(moved)
        assert workers[1].terminate() == 0
        assert second.terminate() == 0
        assert addresses() == {}, "those that stop in order leave nothing"


async def test_a_node_that_finds_no_coordinator_says_where_it_has_looked(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    meta = f"etcd://{etcd.address}/{tmp_path.name}"
    common = ("--data-dir", str(tmp_path / "data"), "--meta", meta, "--listen", "127.0.0.1:0")
    with RoleProcess("coordinator", *common, pchannels="2") as first:
        await first.ready()
        assert first.terminate() == 0
    with RoleProcess("node", *common, coordinator_wait_s="0.5") as lost:
        complaint = await lost.complaint()
    assert "within 0.5 s: no coordinator is known" in complaint
    assert f"start `tidemark coordinator` with --meta {meta}" in complaint


async def test_a_single_broker_is_coordinator_and_node_to_milvus(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    meta, root = f"etcd://{etcd.address}/{tmp_path.name}", f"{ROOT}/single"
    with BrokerProcess(tmp_path / "data", meta=meta, milvus_root=root, pchannels="2") as broker:

        async def announced() -> bool:
            found = sessions(etcd, root)
            return {(name, it["Address"], it["ServerID"]) for name, it in found.items()} == {
                ("mixcoord", broker.address, 1), ("streamingnode-1", broker.address, 1),
            }  # fmt: skip

        await until(announced)
        broker.kill()

        async def gone() -> bool:
            return sessions(etcd, root) == {}

        await until(gone)


@pytest.mark.parametrize("bumped", [False, True])
async def test_coordinator_and_node_of_a_restored_etcd_end_and_say_why(
    tmp_path: Path, bumped: bool
) -> None:
    with EtcdServer(tmp_path / "etcd") as own, ExitStack() as running:
        meta = f"etcd://{own.address}/restored"
        common = ("--data-dir", str(tmp_path / "data"), "--meta", meta, "--listen", "127.0.0.1:0")

        def start(*words: str) -> RoleProcess:
            return running.enter_context(RoleProcess(*words, *common, pchannels="1"))

        coordinator = start("coordinator")
        await coordinator.ready()
        own.back_up()
        node = start("node", "--node-id", "1")
        await node.ready()
        if bumped:
            head = own.post("kv/range", {"key": "cGluZw=="})["header"]
        own.restore()
        if bumped:
            own.raise_revision(above=int(head["revision"]))
        await coordinator.complaint()  # the last word may be that of its witness
        assert "restored from a backup" in await node.complaint()
