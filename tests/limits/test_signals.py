"""SIGHUP reloads and never kills; SIGTERM ends a process in order: whatever it is doing."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

from broker.client import connect
from broker.core.naming import pchannel_names
from broker.process_signals import RELOAD_GAP_S
from tests.broker_process import free_port
from tests.roles_processes import FreshRoleProcess, RoleProcess, is_alive, node_pids, until

GUARD_S = 90.0
STOP_S_MAX = 30.0
"""Far above the 5 s that a quiet machine needs; a stop that waits for something takes longer."""
(PCHANNEL,) = pchannel_names("by-dev", 1)
NAME = "trains"


class Configured:
    """A configuration file, and the options of a command that reads it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "broker.toml"
        self.options = (
            *("--config", str(self.file), "--data-dir", str(folder / "data")),
            *("--listen", "127.0.0.1:0", "--pchannels", "1"),
        )

    def write(self, *lines: str) -> None:
        self.file.write_text("\n".join(lines))


def handles_hangups(pid: int) -> bool:
    """Whether the process has installed its handlers; before, it is an interpreter that starts."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught & 1 << (signal.SIGHUP - 1))


async def until_handling(process: RoleProcess) -> None:
    async def handles() -> bool:
        return handles_hangups(process.pid)

    await until(handles)


async def hammered(process: RoleProcess, *numbers: signal.Signals) -> None:
    """Send signals, a hundred a second."""
    while process.process.poll() is None:
        for number in numbers:
            process.process.send_signal(number)
        await anyio.sleep(0.01)


# ---- SIGHUP ------------------------------------------------------------------------------------


async def test_what_can_change_is_reloaded_and_the_rest_is_named(tmp_path: Path) -> None:
    config = Configured(tmp_path)
    config.write('log_level = "warning"', "segment_bytes = 1048576", "snapshot_period_s = 0.2")
    with FreshRoleProcess("serve", *config.options) as broker:
        async with connect(await broker.ready()) as log:
            await log.collections.create(NAME)
            for _ in range(50):
                await log.append_batch(NAME, [os.urandom(64_000)])
            (before,) = await log.admin.channels()
            config.write(
                'log_level = "warning,broker.node=info"',
                "segment_bytes = 1048576",
                "snapshot_period_s = 0.2",
                "retention_bytes = 100000",
                "soft_tick_interval_ms = 400",
            )
            broker.process.send_signal(signal.SIGHUP)
            said = await broker.says("settings reloaded")
            assert "log_level=warning,broker.node=info, retention_bytes=100000" in said
            assert "need_a_restart=soft_tick_interval_ms" in said

            async def shrunk() -> bool:
                (channel,) = await log.admin.channels()
                return channel.first_id > before.first_id

            await until(shrunk)
            config.write("retention_bytes = -1")
            broker.process.send_signal(signal.SIGHUP)
            said = await broker.says("settings not reloaded")
            assert "retention_bytes: must be greater than or equal to 0, not -1" in said
            await log.append(NAME, b"alive")
        assert broker.terminate() == 0


async def test_a_parent_passes_settings_on_to_its_nodes_and_to_their_successors(
    tmp_path: Path,
) -> None:
    config = Configured(tmp_path)
    config.write("retention_ms = 1000000")
    with FreshRoleProcess("serve", "--nodes", "1", *config.options) as parent:
        async with connect(await parent.ready()) as log:
            (node,) = (await node_pids(log)).values()
            config.write("retention_ms = 2000000")
            parent.process.send_signal(signal.SIGHUP)
            lines = [await parent.says("settings reloaded") for _ in range(2)]
            assert all("changed=" in line and "retention_ms=2000000" in line for line in lines)
            assert sum("node=1" in line for line in lines) == 1
            os.kill(node, signal.SIGHUP)
            assert "nothing" in await parent.says("settings reloaded")
            os.kill(node, signal.SIGKILL)

            async def replaced() -> bool:
                return [*(await node_pids(log)).values()] not in ([], [node])

            await until(replaced)
            (successor,) = (await node_pids(log)).values()
            assert b"TIDEMARK_RETENTION_MS=2000000" in environment_of(successor)
        assert parent.terminate() == 0


def environment_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@pytest.mark.parametrize("nodes", ["0", "1"])
async def test_a_hangup_kills_neither_a_start_nor_a_drain(tmp_path: Path, nodes: str) -> None:
    config = Configured(tmp_path)
    config.write()
    with FreshRoleProcess("serve", "--nodes", nodes, *config.options) as broker:
        await until_handling(broker)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drained, broker)
            tasks.start_soon(hammered, broker, signal.SIGHUP)
            async with connect(await broker.ready()) as log:
                await log.collections.create(NAME)
            broker.process.send_signal(signal.SIGTERM)
        assert broker.process.returncode == 0


async def test_many_hangups_are_few_reloads_and_the_last_one_counts(tmp_path: Path) -> None:
    config = Configured(tmp_path)
    config.write()
    with FreshRoleProcess("serve", *config.options) as broker:
        await broker.ready()
        began_s = anyio.current_time()
        for _ in range(200):
            broker.process.send_signal(signal.SIGHUP)
            await anyio.sleep(0.005)
        config.write("retention_ms = 1000000")
        broker.process.send_signal(signal.SIGHUP)
        reloads = 1
        while "retention_ms" not in await broker.says("settings reloaded"):
            reloads += 1
        assert reloads <= 2 + (anyio.current_time() - began_s) / RELOAD_GAP_S
        assert broker.terminate() == 0


async def drained(process: RoleProcess) -> None:
    """Read what it says, so that the pipe never fills."""
    assert process.process.stderr is not None
    await anyio.to_thread.run_sync(process.process.stderr.read, abandon_on_cancel=True)


# ---- SIGTERM -----------------------------------------------------------------------------------


async def ends_in_order(process: RoleProcess, *numbers: signal.Signals) -> None:
    """The signals end the process with code 0, soon, and without a traceback."""
    began_s = anyio.current_time()
    for number in numbers or (signal.SIGTERM,):
        process.process.send_signal(number)
    with anyio.fail_after(GUARD_S):
        _, said = await anyio.to_thread.run_sync(
            process.process.communicate, abandon_on_cancel=True
        )
    assert process.process.returncode == 0, said
    assert "Traceback" not in said
    assert anyio.current_time() - began_s < STOP_S_MAX


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_ends_a_process_that_has_just_begun(
    tmp_path: Path, number: signal.Signals
) -> None:
    with FreshRoleProcess("serve", *Configured(tmp_path).options[2:]) as broker:
        await until_handling(broker)
        await ends_in_order(broker, number)


async def test_a_stop_ends_the_recovery_of_a_long_log(tmp_path: Path) -> None:
    options = Configured(tmp_path).options[2:]
    with FreshRoleProcess(
        "serve", *options, snapshot_period_s="600", snapshot_records="1000000"
    ) as it:
        async with connect(await it.ready()) as log:
            await log.collections.create(NAME)
            async with anyio.create_task_group() as tasks:
                for _ in range(60):
                    # All of them at once: the last one waits for the others.
                    append = partial(log.append_batch, NAME, deadline_s=GUARD_S)
                    tasks.start_soon(append, [bytes(100)] * 5000)
        it.process.kill()
    with FreshRoleProcess("serve", *options) as broker:

        async def opening() -> bool:
            return any(f"/{PCHANNEL}/" in path for path in open_files(broker.pid))

        await until(opening)
        await ends_in_order(broker)


def open_files(pid: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except OSError:
            continue
    return found


async def test_a_stop_ends_a_node_that_waits_for_a_coordinator(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    options = ("--coordinator", nobody, "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    with FreshRoleProcess("node", *options) as node:
        await node.says("waiting for a coordinator to make the cluster")
        await ends_in_order(node)
    with FreshRoleProcess("coordinator", *Configured(tmp_path).options[2:]) as coordinator:
        await coordinator.ready()
        assert coordinator.terminate() == 0
    data = ("--data-dir", str(tmp_path / "data"))
    with FreshRoleProcess(
        "node", "--coordinator", nobody, *data, "--listen", "127.0.0.1:0"
    ) as node:
        await node.says("the coordinator has not accepted this node yet")
        await ends_in_order(node)


async def never(_: dict[int, int]) -> bool:
    return True


async def killed(pids: dict[int, int]) -> bool:
    """A node has died: its parent starts another."""
    os.kill(pids[1], signal.SIGKILL)
    return True


async def restarting(pids: dict[int, int]) -> bool:
    await killed(pids)

    async def gone() -> bool:
        return not is_alive(pids[1])

    await until(gone)
    await anyio.sleep(1.0)  # about when the successor starts; any moment must do
    return True


@pytest.mark.parametrize("first", [never, killed, restarting])
async def test_a_stop_ends_a_parent_and_all_its_nodes_whatever_they_do(
    tmp_path: Path, first: Callable[[dict[int, int]], object]
) -> None:
    with FreshRoleProcess("serve", "--nodes", "2", *Configured(tmp_path).options[2:]) as parent:
        async with connect(await parent.ready()) as log:
            pids = await node_pids(log)
        await first(pids)  # type: ignore[misc]
        children = children_of(parent.pid)
        await ends_in_order(parent, signal.SIGTERM, signal.SIGTERM)
        assert [it for it in {*pids.values(), *children} if is_alive(it)] == []


def children_of(pid: int) -> list[int]:
    return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_stops_during_a_stop_change_nothing(tmp_path: Path) -> None:
    with FreshRoleProcess("serve", *Configured(tmp_path).options[2:]) as broker:
        await broker.ready()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hammered, broker, signal.SIGTERM, signal.SIGINT)
            tasks.start_soon(drained, broker)
        assert broker.process.returncode == 0
