"""RabbitMQ as a baseline: a node of its own on loopback, and what a confirm counts."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import uvloop
from benchmark.baselines.rabbitmq_server import PROGRAM, rabbitmq, settings
from benchmark.baselines.rabbitmq_stream import BATCH, Confirms, RabbitMQStream
from benchmark.load.pace import Pace
from benchmark.processes import Unavailable
from benchmark.results.figures import P50, RATE

from tests.missing_part import missing_part

LISTENER = f"""#!{sys.executable}
import os, signal, socket, sys
open(sys.argv[0] + ".pid", "w").write(str(os.getpid()))
listener = socket.create_server(("127.0.0.1", int(os.environ["ERL_EPMD_PORT"])))
signal.pause()
"""
BROKEN = "#!/bin/sh\necho the cookie is damaged\nexit 1\n"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_machine_without_the_server_is_told_how_to_install_it(tmp_path: Path) -> None:
    with (
        pytest.raises(Unavailable, match="apt-get install rabbitmq-server"),
        rabbitmq(tmp_path, tmp_path / "no-such-server"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_node_uses_loopback_and_its_own_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RABBITMQ_MNESIA_BASE", "/var/lib/rabbitmq/mnesia")
    monkeypatch.setenv("RABBITMQ_NODENAME", "rabbit")
    variables = settings(tmp_path, 1001, 1002, 1003)
    ours = {name: it for name, it in variables.items() if name.startswith(("RABBITMQ_", "ERL_"))}
    paths = [it for it in ours.values() if it.startswith("/") and it != os.devnull]
    assert len(paths) == 4
    assert all(it.startswith(str(tmp_path)) for it in paths)
    assert variables["HOME"] == str(tmp_path), "the cookie of the machine is not touched"
    assert (ours["ERL_EPMD_ADDRESS"], ours["ERL_EPMD_PORT"]) == ("127.0.0.1", "1001")
    assert "{127,0,0,1}" in ours["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
    config = (tmp_path / "rabbitmq.conf").read_text().splitlines()
    assert "listeners.tcp = none" in config
    assert "stream.listeners.tcp.1 = 127.0.0.1:1003" in config


def test_a_server_that_does_not_start_is_left_out_and_its_epmd_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rstream")
    epmd = program(tmp_path / "bin" / "epmd", LISTENER)
    monkeypatch.setenv("PATH", str(epmd.parent), prepend=":")
    server = program(tmp_path / "bin" / "rabbitmq-server", BROKEN)
    with (
        pytest.raises(Unavailable, match=r"does not start: the cookie is damaged"),
        rabbitmq(tmp_path, server),
    ):
        pass
    assert not psutil.pid_exists(int(epmd.with_name("epmd.pid").read_text()))


async def test_a_refused_message_ends_a_run_and_a_confirmed_one_makes_room() -> None:
    confirms = Confirms()
    confirms.count = 2
    confirms.came(SimpleNamespace(is_confirmed=True))
    await confirms.room(1)
    confirms.came(SimpleNamespace(is_confirmed=False, response_code=16))
    with pytest.raises(RuntimeError, match="refused a message: response code 16"):
        await confirms.room(0)


async def test_messages_without_a_confirm_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.baselines.rabbitmq_stream.CALL_S_MAX", 0.01)
    confirms = Confirms()
    confirms.count = 3
    with pytest.raises(RuntimeError, match="3 messages without a confirm"):
        await confirms.room(0)


def test_a_real_server_is_filled_read_and_ended(tmp_path: Path) -> None:
    if not PROGRAM.exists():
        missing_part("Debian's rabbitmq-server is not installed")
    pytest.importorskip("rstream")
    with rabbitmq(tmp_path) as server:
        process = psutil.Process(server.pid)
        family = [process, *process.children(recursive=True)]
        addresses = {it.laddr.ip for it in process.net_connections() if it.status == "LISTEN"}
        assert addresses == {"127.0.0.1"}
        stream = RabbitMQStream(server.address)

        def run(work: Any) -> dict[str, float]:
            return uvloop.run(work)

        assert run(stream.one_by_one(5))[P50] > 0
        assert run(stream.append(1, 1500))["messages"] == 1500
        assert run(stream.append(BATCH, 2 * BATCH))["messages"] == 2 * BATCH
        found = run(stream.read(2 * BATCH))
        assert found["messages"] == 2 * BATCH
        assert found[RATE] > 0
        assert run(stream.at_pace(Pace(1000, 0.1)))["messages"] == 100
    _, alive = psutil.wait_procs(family, timeout=30)  # its children end when it has ended
    assert [it for it in alive if it.status() != psutil.STATUS_ZOMBIE] == []
