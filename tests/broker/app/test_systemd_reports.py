"""What a broker reports to the socket that systemd gives to a service of Type=notify."""

import os
import socket
from pathlib import Path

import pytest

from broker.app.systemd_reports import READY, VARIABLE, SystemdReports
from tests.broker_process import BrokerProcess

GUARD_S = 60.0


def listening(address: str) -> socket.socket:
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.bind(address)
    systemd.settimeout(GUARD_S)
    return systemd


def test_a_broker_with_nodes_is_ready_once_and_says_that_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(str(tmp_path / "notify")) as systemd:
        monkeypatch.setenv(VARIABLE, str(tmp_path / "notify"))
        with BrokerProcess(tmp_path / "data", nodes="1", pchannels="1") as broker:
            # Sent when the ready line was: the node is a process of its own and reports nothing.
            assert systemd.recv(100) == b"READY=1"
            assert broker.terminate() == 0
        assert systemd.recv(100) == b"STOPPING=1"
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.recv(100)


def test_an_abstract_address_is_reached_and_a_deaf_one_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"tidemark-test-{os.getpid()}"
    with listening(f"\0{name}") as systemd:
        monkeypatch.setenv(VARIABLE, f"@{name}")
        reports = SystemdReports()
        assert VARIABLE not in os.environ
        reports.report(READY)
        assert systemd.recv(100) == READY.encode()
    reports.report(READY)
    SystemdReports().report(READY)
