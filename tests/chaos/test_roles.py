"""Coordinator and nodes started by hand: what wrong starts are told; a coordinator that dies."""

import os
import signal
from pathlib import Path

import pytest

from broker.addresses import split_address
from broker.client import connect
from broker.coordinator.leases.leadership import lead
from broker.meta.sqlite import SqliteMetaStore
from broker.model.failure import Refused
from broker.remote.calls import Calls
from schemas.generated.tidemark import v1
from tests.broker_process import free_port
from tests.roles_processes import GUARD_S, RoleProcess, owners, until

PCHANNELS = "2"


def coordinator(data: Path, address: str = "127.0.0.1:0", **settings: str) -> RoleProcess:
    options = ("--data-dir", str(data), "--listen", address, "--pchannels", PCHANNELS)
    return RoleProcess("coordinator", *options, **settings)


def node(number: int, data: Path, address: str, **settings: str) -> RoleProcess:
    options = ("--node-id", str(number), "--coordinator", address, "--data-dir", str(data))
    return RoleProcess("node", *options, "--listen", "127.0.0.1:0", **settings)


async def test_a_dead_coordinator_comes_back_to_the_same_owners_and_terms(tmp_path: Path) -> None:
    data, address = tmp_path / "data", f"127.0.0.1:{free_port()}"
    with coordinator(data, address) as first, node(1, data, address) as worker:
        await first.ready()
        await worker.ready()
        async with connect(address) as log:
            vchannels = (await log.collections.create("rows", shards=2)).vchannels
            await log.append(vchannels[0], b"before", deadline_s=GUARD_S)
            before = {it.name: (it.node_id, it.term) for it in await log.admin.channels()}
            os.kill(first.pid, signal.SIGKILL)
            with coordinator(data, address) as second:
                await second.ready()
                await log.append(vchannels[0], b"after", deadline_s=GUARD_S)

                async def all_served() -> bool:
                    return len(await owners(log)) == 2

                await until(all_served)
                after = {it.name: (it.node_id, it.term) for it in await log.admin.channels()}
                assert after == before
                found = [it.payload async for it in log.read(vchannels[0], until="now").messages()]
                assert found == [b"before", b"after"]
                assert worker.terminate() == 0
                assert second.terminate() == 0


async def test_a_node_says_who_commits_batches(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with coordinator(data) as first:
        address = await first.ready()
        with node(1, data, address) as worker:
            host, port = split_address(await worker.ready())
            calls = Calls(host, port, {})
            asked = (
                ("Commit", v1.CommitBatchRequest(app="job"), v1.CommitBatchResponse),
                ("Abort", v1.AbortBatchRequest(app="job"), v1.AbortBatchResponse),
                ("List", v1.ListCommitsRequest(), v1.ListCommitsResponse),
            )
            for method, request, answer in asked:
                with pytest.raises(Refused, match=f"commits batches; connect to {address}"):
                    await calls.call(
                        f"/tidemark.v1.Commits/{method}", request, answer, deadline_s=GUARD_S
                    )
            calls.close()


async def test_wrong_starts_are_told_what_is_wrong_and_change_nothing(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    with coordinator(data) as first:
        address = await first.ready()
        with node(1, data, address) as worker:
            await worker.ready()
            with node(1, data, address) as twin:
                complaint = await twin.complaint()
                assert f"is in use by process {worker.pid}" in complaint
                assert "--node-id" in complaint
            with coordinator(other, "127.0.0.1:0") as stranger:
                await stranger.ready()
            with node(2, other, address) as lost:
                assert "both need the same --data-dir" in await lost.complaint()
            async with connect(address) as log:

                async def all_served() -> bool:
                    return set((await owners(log)).values()) == {1}

                await until(all_served)
            assert worker.terminate() == 0
        assert first.terminate() == 0
    with node(1, data, address, coordinator_wait_s="1") as waiting:
        assert "no coordinator accepted this node within 1 s" in await waiting.complaint()
    with RoleProcess("node", "--data-dir", str(data)) as alone:
        assert "pass --coordinator HOST:PORT" in await alone.complaint(code=2)


async def test_a_coordinator_that_was_deposed_ends_by_itself_and_says_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with coordinator(data) as first:
        address = await first.ready()
        with node(1, data, address) as worker:
            await worker.ready()
            async with await SqliteMetaStore.open(data / "meta.sqlite") as store:
                await lead(store)
            complaint = await first.complaint(code=3)
            assert "a newer coordinator leads this cluster" in complaint


async def test_a_node_that_finds_no_coordinator_says_so_at_once_and_ends_after_a_while(
    tmp_path: Path,
) -> None:
    data, nobody = tmp_path / "data", f"127.0.0.1:{free_port()}"
    with coordinator(data) as first:
        await first.ready()
        assert first.terminate() == 0
    with node(1, data, nobody, coordinator_wait_s="0.5") as lost:
        complaint = await lost.complaint()
    assert (
        f"no coordinator accepted this node within 0.5 s: nothing listens at {nobody}" in complaint
    )
    assert "pass --coordinator HOST:PORT" in complaint
    with node(1, data, nobody) as patient:
        said = await patient.says("the coordinator has not accepted this node yet: retrying")
        assert f"nothing listens at {nobody}" in said


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_an_ordinary_stop_or_start_warns_of_no_lost_node(
    tmp_path: Path, stop: signal.Signals
) -> None:
    data = ("--nodes", "2", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    with RoleProcess("serve", *data, pchannels=PCHANNELS) as broken_off:
        await broken_off.ready()
    # Far more than an idle stop needs: what is too slow for them is told of, rightly.
    patient = {"drain_s": "60", "node_lease_s": "60"}
    with RoleProcess("serve", *data, pchannels=PCHANNELS, **patient) as broker:
        address = await broker.ready()
        async with connect(address) as log:
            assert set((await owners(log)).values()) == {1, 2}
        said = await broker.stopped_by(stop)
    assert [line for line in said.splitlines() if "still starting" not in line] == []


async def test_a_node_that_nobody_reaches_where_it_says_does_not_join_and_is_told_of(
    tmp_path: Path,
) -> None:
    data, nobody = tmp_path / "data", f"127.0.0.1:{free_port()}"
    with coordinator(data) as first:
        address = await first.ready()
        with node(1, data, address) as worker:
            there = await worker.ready()
            with node(2, data, address, advertise=nobody) as lost:
                said = await lost.says("the coordinator has not accepted this node yet: retrying")
                told = f"node 2 advertises {nobody}, and the coordinator cannot reach it"
                assert told in said
                async with connect(address) as log:
                    (warning,) = (await log.admin.health()).warnings
                    assert told in warning
                    assert "start it with --advertise HOST[:PORT]" in warning
                    assert set((await owners(log)).values()) <= {1}
            with node(3, data, address, advertise=there, coordinator_wait_s="0.5") as twin:
                complaint = await twin.complaint()
            assert "the coordinator did not accept this node within 0.5 s: " in complaint
            assert f"node 3 advertises {there}, and another process answers there" in complaint
