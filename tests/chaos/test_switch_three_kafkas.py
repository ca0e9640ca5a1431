"""The log moves to a Kafka of three nodes and back, with a node of it killed in each stage."""

from itertools import cycle
from pathlib import Path

import anyio
from benchmark.baselines.kafka_server import KafkaNode

from broker.client import Client
from tests.broker.app.switching.switch_programs import check_all, programs, until
from tests.broker_process import BrokerProcess, free_port
from tests.kafka_node import kafka_nodes

__all__ = ["kafka_nodes"]
PREFIX = "moved"
STAGES = ("copying", "switching", "dropping")
ENDED = ("done", "aborted")
SETTINGS = {"pchannels": "2", "log_level": "warning"}
SWITCH_S_MAX = 180.0
"""Against hanging only: a leader that is dead is replaced after some seconds."""


async def switch(log: Client, target: str, aim: str, node: KafkaNode) -> None:
    """Switch, with `node` killed in the stage `aim` or soon after, and started again behind it."""
    with anyio.fail_after(SWITCH_S_MAX):
        await log.admin.alter_wal(target)
        while (await log.admin.wal_status()).stage not in (aim, *ENDED):
            pass
        await anyio.to_thread.run_sync(node.kill)
        try:
            status = await until(log, ENDED)
            assert (status.stage, status.place) == ("done", target)
        finally:
            await anyio.to_thread.run_sync(node.start)


async def test_one_of_three_nodes_may_die_in_each_stage_of_a_switch_there_and_back(
    kafka_nodes: list[KafkaNode], tmp_path: Path
) -> None:
    wal = f"kafka://{','.join(it.address for it in kafka_nodes)}/{PREFIX}?replication=3&min_isr=2"
    broker = BrokerProcess(tmp_path / "data", f"127.0.0.1:{free_port()}", **SETTINGS)
    dying = cycle(kafka_nodes)
    try:
        async with programs(broker.address) as those:
            for aim in STAGES:
                await switch(those.log, wal, aim, next(dying))
                await switch(those.log, "", aim, next(dying))
            await those.until_all_are_through()
            await check_all(those)
            assert (await those.log.admin.health()).warnings == ()
        assert broker.terminate() == 0
    finally:
        broker.kill()
