"""A named cursor keeps its messages while their owner and the coordinator are killed in turn."""

import os
import signal
from pathlib import Path

import pytest

from broker.client import Client, OutOfRange, connect
from tests.broker_process import free_port
from tests.roles_processes import GUARD_S, RoleProcess, owners, until

SEGMENT_BYTES = 64 * 1024
MESSAGE = bytes(4 * 1024)
A_PHASE = 64
"""Messages, of some segments: more than retention keeps."""

SETTINGS = {
    "segment_bytes": str(SEGMENT_BYTES),
    "retention_bytes": str(SEGMENT_BYTES),
    "retention_check_s": "0.2",
    "snapshot_period_s": "0.2",
    "node_lease_s": "1",
    "node_lost_grace_s": "0.2",
}


def coordinator(data: Path, address: str, **settings: str) -> RoleProcess:
    options = ("--data-dir", str(data), "--listen", address, "--pchannels", "1")
    return RoleProcess("coordinator", *options, **SETTINGS, **settings)


def node(number: int, data: Path, address: str, **settings: str) -> RoleProcess:
    options = ("--node-id", str(number), "--coordinator", address, "--data-dir", str(data))
    return RoleProcess("node", *options, "--listen", "127.0.0.1:0", **SETTINGS, **settings)


async def made(log: Client) -> str:
    """The vchannel of a collection with a cursor at its beginning, once its pchannel is served."""

    async def is_served() -> bool:
        return bool(await owners(log))

    await until(is_served)
    (shard,) = (await log.collections.create("rows", shards=1)).vchannels
    await log.cursor("slow").reset("all", "rows")
    return shard


async def fill(log: Client, first: int) -> int:
    """Append a phase of numbered messages; the number that follows."""
    for number in range(first, first + A_PHASE):
        await log.append("rows", b"%d " % number + MESSAGE, deadline_s=GUARD_S)
    return first + A_PHASE


async def has_removed(log: Client, shard: str) -> bool:
    return (await log.offsets.describe([shard]))[shard].removed_tick > 0


async def held(log: Client, name: str) -> int:
    return (await log.cursor(name).get(measured=False)).held_bytes


async def test_what_a_cursor_holds_survives_kills_and_a_move_and_goes_when_it_is_dropped(
    tmp_path: Path,
) -> None:
    data, address = tmp_path / "data", f"127.0.0.1:{free_port()}"
    with coordinator(data, address) as first, node(1, data, address) as one:
        await first.ready()
        await one.ready()
        async with connect(address) as log:
            shard = await made(log)
            filled = await fill(log, 0)

            async def is_held() -> bool:
                return await held(log, "slow") > 0

            await until(is_held)
            with node(2, data, address) as two:
                await two.ready()
                os.kill(one.pid, signal.SIGKILL)

                async def has_moved() -> bool:
                    return set((await owners(log)).values()) == {2}

                await until(has_moved)
                filled = await fill(log, filled)
                os.kill(first.pid, signal.SIGKILL)
                with coordinator(data, address) as second:
                    await second.ready()
                    filled = await fill(log, filled)
                    await until(is_held)
                    assert not await has_removed(log, shard)
                    found = [
                        int(it.payload.split()[0])
                        async for it in log.read("rows", start="slow", until="now").messages()
                    ]
                    assert found == [*range(filled)], "all of them, in order"
                    health = await log.admin.health()
                    assert ("cursor", "slow") in {(it.kind, it.name) for it in health.holders}
                    await log.cursor("slow").drop()

                    async def is_given_back() -> bool:
                        return await has_removed(log, shard)

                    await until(is_given_back)
                    assert second.terminate() == 0


async def test_who_was_passed_is_named_although_everybody_was_killed_since(tmp_path: Path) -> None:
    data, address = tmp_path / "data", f"127.0.0.1:{free_port()}"
    little = {"hold_bytes_max": str(SEGMENT_BYTES)}
    with coordinator(data, address, **little) as first, node(1, data, address, **little) as one:
        await first.ready()
        await one.ready()
        async with connect(address) as log:
            shard = await made(log)
            await fill(log, 0)

            async def is_removed() -> bool:
                return await has_removed(log, shard)

            await until(is_removed)
            os.kill(one.pid, signal.SIGKILL)
            os.kill(first.pid, signal.SIGKILL)
    # With more room: retention may still have something to remove, and would pass it again.
    with coordinator(data, address) as second, node(1, data, address) as again:
        await second.ready()
        await again.ready()
        async with connect(address) as log:

            async def is_served() -> bool:
                return bool(await owners(log))

            await until(is_served)
            health = await log.admin.health()
            (passed,) = health.passed
            assert (passed.kind, passed.name, passed.cause) == ("cursor", "slow", "bytes")
            assert passed.limit == SEGMENT_BYTES < passed.bytes
            with pytest.raises(OutOfRange, match="more than hold_bytes_max") as caught:
                await anext(log.read("rows", start="slow"))
            assert "log.cursor('slow').reset(\"all\")" in str(caught.value)
            await log.cursor("slow").reset("all")
            reader = log.read("rows", start="slow", until="now")
            assert [it.payload async for it in reader.messages()]
            assert (await log.admin.health()).passed == ()
            assert again.terminate() == 0
            assert second.terminate() == 0
