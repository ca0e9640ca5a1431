"""Coordinator and nodes started by hand: what wrong starts are told; a coordinator that dies."""

import os
import signal
from pathlib import Path

from broker.client import connect
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
            before = {it.name: (it.node_id, it.term) for it in await log.channels()}
            os.kill(first.pid, signal.SIGKILL)
            with coordinator(data, address) as second:
                await second.ready()
                await log.append(vchannels[0], b"after", deadline_s=GUARD_S)

                async def all_served() -> bool:
                    return len(await owners(log)) == 2

                await until(all_served)
                after = {it.name: (it.node_id, it.term) for it in await log.channels()}
                assert after == before
                found = [it.payload async for it in log.read(vchannels[0], until="now").messages()]
                assert found == [b"before", b"after"]
                assert worker.terminate() == 0
                assert second.terminate() == 0


async def test_wrong_starts_are_told_what_is_wrong_and_change_nothing(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    with coordinator(data) as first:
        address = await first.ready()
        with coordinator(data) as second:
            assert f"is in use by process {first.pid}" in await second.complaint()
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
    with RoleProcess("node", "--data-dir", str(data)) as alone:
        assert "pass --coordinator HOST:PORT" in await alone.complaint(code=2)
