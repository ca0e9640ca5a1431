"""A pause of consumption, and new columns, reach every node of a cluster of processes."""

import os
import signal
from collections import Counter
from pathlib import Path

import pyarrow as pa

from broker.client import Client, connect
from broker.client.cluster.server_admin import ServerAdmin
from tests.broker_process import BrokerProcess
from tests.roles_processes import node_pids, owners, until


async def paused_nodes(log: Client) -> list[bool]:
    network = log._network
    nodes = [
        ServerAdmin(network.connection(it), deadline_s=30) for it in network.assignments.addresses
    ]
    return [(await node.health()).consumption_paused for node in nodes]


async def test_a_pause_of_consumption_reaches_every_node(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="4") as broker:
        async with connect(broker.address) as log:
            assert not any(await paused_nodes(log))
            await log.admin.pause_consumption()
            assert all(await paused_nodes(log))
            assert (await log.admin.health()).consumption_paused
            await log.admin.resume_consumption()
            assert not any(await paused_nodes(log))
            assert not (await log.admin.health()).consumption_paused


async def test_a_killed_node_comes_back_to_its_share_and_knows_of_the_pause(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="4") as broker:
        async with connect(broker.address) as log:
            await log.admin.pause_consumption()
            before = await node_pids(log)
            os.kill(before[2], signal.SIGKILL)

            async def is_back() -> bool:
                pid = (await node_pids(log)).get(2, before[2])
                shares = Counter((await owners(log)).values())
                return pid != before[2] and min(shares[1], shares[2]) > 0

            await until(is_back)
            assert await paused_nodes(log) == [True, True]
            assert (await log.admin.health()).consumption_paused


async def test_every_node_knows_the_columns_of_a_collection_and_those_that_are_added(
    tmp_path: Path,
) -> None:
    narrow = pa.table({"k": range(400)})
    wide = narrow.append_column("new", [["x"] * 400])
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="4") as broker:
        async with connect(broker.address) as log:
            await log.collections.create("rows", shards=4, schema=narrow.schema)
            assert len(await log.append_arrow("rows", narrow, key="k")) == 4
            await log.collections.add_columns("rows", pa.schema([("new", pa.string())]))
            assert len(await log.append_arrow("rows", wide, key="k")) == 4
            found = [rows async for rows in log.read_arrow("rows", columns=["new"], until="now")]
            values = [it for rows in found for it in rows.column(0).to_pylist()]
            assert sorted(values, key=str) == [None] * 400 + ["x"] * 400
