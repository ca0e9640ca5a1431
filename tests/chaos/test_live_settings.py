"""Settings that are changed in a running cluster of real processes, and what dies meanwhile."""

import os
import re
import signal
from pathlib import Path

import anyio

from broker.client import Client, connect
from broker.node.membership.membership import RENEWALS_PER_LEASE
from tests.broker_process import BrokerProcess, free_port
from tests.roles_processes import RoleProcess, node_pids, until

LEASE_S = 300
SETTINGS = {"pchannels": "4", "node_lease_s": str(LEASE_S)}
"""A long lease: a node renews it every minute, so what it has sooner was not left to that."""
RENEWAL_S = LEASE_S / RENEWALS_PER_LEASE
STOPPED_LEASE_S = "30"
"""A stopped node is one of the cluster for so long: longer than a busy machine takes to ask it."""


async def on_all_nodes(log: Client, nodes: int) -> bool:
    report = await log.config.settings()
    return len(report.nodes) == nodes and all(at == report.revision for at in report.nodes.values())


async def first_ids(log: Client) -> list[int]:
    return [it.first_id for it in await log.admin.channels()]


async def test_retention_reaches_both_nodes_long_before_they_renew_their_leases(
    tmp_path: Path,
) -> None:
    """Seen in the logs themselves: each node removes old segments at the next check."""
    given = {"nodes": "2", "segment_bytes": "65536", "retention_check_s": "3600", **SETTINGS}
    with BrokerProcess(tmp_path / "data", **given) as broker:
        async with connect(broker.address) as log:
            await until(lambda: on_all_nodes(log, 2))
            await log.collections.create("trains", shards=4)
            for shard in (await log.collections.get("trains")).vchannels:
                for _ in range(8):
                    await log.append_batch(shard, [b"x" * 1000] * 60)
            before = await first_ids(log)
            assert before == [1] * 4
            with anyio.fail_after(RENEWAL_S / 2):
                await log.config.set("retention_check_s", "0.1")
                done = await log.config.set("retention_bytes", "1000")
                assert sorted([*done.reached, *done.behind]) == [1, 2]
                # A node of a busy machine may not answer in time; it is asked again, soon.
                await until(lambda: on_all_nodes(log, 2))

            async def removed() -> bool:
                return min(await first_ids(log)) > 1

            await until(removed)
        assert broker.terminate() == 0


async def test_a_node_that_is_killed_and_one_that_was_stopped_get_them_when_they_are_back(
    tmp_path: Path,
) -> None:
    given = {"nodes": "2", "pchannels": "4", "node_lease_s": STOPPED_LEASE_S}
    with BrokerProcess(tmp_path / "data", **given) as broker:
        async with connect(broker.address) as log:
            await until(lambda: on_all_nodes(log, 2))
            pids = await node_pids(log)
            os.kill(pids[1], signal.SIGSTOP)
            done = await log.config.set("txn_keepalive_ms", "4321")
            assert 1 in done.behind
            assert sorted([*done.reached, *done.behind]) == [1, 2]

            async def other_has_them() -> bool:
                report = await log.config.settings()
                return report.nodes[2] == report.revision

            await until(other_has_them)
            os.kill(pids[1], signal.SIGCONT)
            await until(lambda: on_all_nodes(log, 2))
            os.kill(pids[2], signal.SIGKILL)
            await log.config.set("retention_ms", "99000")
            await until(lambda: on_all_nodes(log, 2))
        assert broker.terminate() == 0


async def test_they_survive_kill_nine_of_the_coordinator_and_go_before_its_environment(
    tmp_path: Path,
) -> None:
    data, port = str(tmp_path / "data"), free_port()
    listen = f"127.0.0.1:{port}"
    arguments = ("coordinator", "--data-dir", data, "--listen", listen)
    with RoleProcess(*arguments, pchannels="2") as coordinator:
        await coordinator.ready()
        node = ("node", "--node-id", "1", "--coordinator", listen, "--data-dir", data)
        with RoleProcess(*node, "--listen", "127.0.0.1:0") as alone:
            await alone.ready()
            async with connect(listen) as log:
                done = await log.config.set("retention_ms", "99000")
                await log.config.set("app/colour", "blue")
                coordinator.process.kill()
                coordinator.process.wait()
            with RoleProcess(*arguments, pchannels="2", retention_ms="5") as later:
                await later.ready()
                async with connect(listen) as log:
                    await until(lambda: on_all_nodes(log, 1))
                    report = await log.config.settings()
                    (view,) = [it for it in report.settings if it.name == "retention_ms"]
                    assert (view.started_with, view.stored, view.in_force) == (
                        "5",
                        "99000",
                        "99000",
                    )
                    assert (report.revision, view.revision) == (done.revision, done.revision)
                    (entry,) = await log.config.get(["app/colour"])
                    assert entry.value == "blue"


async def test_the_log_level_changes_without_a_restart(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", nodes="1", pchannels="2", log_format="json") as broker:
        async with connect(broker.address) as log:
            await until(lambda: on_all_nodes(log, 1))
            await log.config.set("log_level", "debug")
            await log.collections.create("said", shards=1)
            await log.append("said", b"x")
            await log.purge("said", upto=(await log.cut("said")).tick)
            await log.config.delete("log_level")
        broker._process.send_signal(signal.SIGTERM)
        _, said = broker._process.communicate(timeout=60)
    assert re.search(r'"level": *"info"', said), said[-2000:]
