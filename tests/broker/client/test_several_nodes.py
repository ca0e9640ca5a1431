"""What a client tells every node of a cluster of several processes."""

from pathlib import Path

from broker.client import Client, connect
from broker.client.admin import Admin
from tests.broker_process import BrokerProcess


async def paused_nodes(log: Client) -> list[bool]:
    network = log._network
    nodes = [Admin(network.connection(it), deadline_s=30) for it in network.assignments.addresses]
    return [(await node.health()).consumption_paused for node in nodes]


async def test_a_pause_of_consumption_reaches_every_node(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", nodes="2", pchannels="4") as broker:
        async with connect(broker.address) as log:
            assert await paused_nodes(log) == [False, False]
            await log.pause_consumption()
            assert await paused_nodes(log) == [True, True]
            await log.resume_consumption()
            assert await paused_nodes(log) == [False, False]
