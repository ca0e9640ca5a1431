"""From an empty folder to a cluster with TLS, by the commands that `tidemark init` prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker.client import ConnectionLost, Tls, connect
from tests.broker_process import BrokerProcess

GUARD_S = 120.0


def tidemark(*words: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "broker", *map(str, words)],
        input=stdin,
        capture_output=True,
        timeout=GUARD_S,
        check=False,
    )


def made(folder: Path, *more: str) -> Path:
    done = tidemark("init", "--secure", folder, *more)
    assert done.returncode == 0, done.stderr
    return folder


async def test_what_init_makes_serves_nodes_and_clients_with_certificates(tmp_path: Path) -> None:
    folder = made(tmp_path / "secure", "--host", "127.0.0.1", "--client", "app")
    config = folder / "tidemark.toml"
    settings = {"pchannels": "2", "nodes": "2", "config": str(config)}
    with BrokerProcess(tmp_path / "data", "127.0.0.1:0", **settings) as broker:
        at = ("--server", broker.listen, "--config", config)
        created = tidemark("collection", "create", "flights", "--shards", "2", *at)
        assert created.returncode == 0, created.stderr
        stored = tidemark("produce", "flights", *at, stdin=b"one\ntwo\nthree\n")
        assert stored.returncode == 0, stored.stderr
        tls = Tls(folder / "ca.pem", folder / "app.pem", folder / "app.key")
        async with connect(broker.listen, tls=tls) as log:
            read = [
                it.payload
                async for b in log.read("flights", start="all", until="now")
                for it in b.messages
            ]
        assert sorted(read) == [b"one", b"three", b"two"]
        with pytest.raises(ConnectionLost, match="if it speaks TLS, connect with TLS"):
            async with connect(broker.listen):
                pass
        with pytest.raises(ConnectionLost, match="asks clients for a certificate"):
            async with connect(broker.listen, tls=Tls(folder / "ca.pem")):
                pass


def test_keys_are_private_and_settings_are_whole(tmp_path: Path) -> None:
    folder = made(tmp_path / "secure", "--client", "a", "--client", "b")
    for name in ("ca", "server", "a", "b"):
        assert (folder / f"{name}.key").stat().st_mode & 0o777 == 0o600
        assert b"PRIVATE" not in (folder / f"{name}.pem").read_bytes()
    shown = tidemark("profile", "show", "--json", "--config", folder / "tidemark.toml")
    assert json.loads(shown.stdout)["tls_cert"]["value"] == str(folder / "a.pem")


@pytest.mark.parametrize("name", ["server", "ca", "../x", "a b", ""])
def test_a_client_whose_name_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "secure"
    refused = tidemark("init", "--secure", folder, "--client", name)
    assert refused.returncode == 2
    assert b"cannot be the name of a client" in refused.stderr
    assert not folder.exists()


@pytest.mark.parametrize(
    "host", ["10.0.0.5:19531", "[::1]", "fe80::1%eth0", "a b", "", "https://x", "m\u00fcnchen.de"]
)
def test_a_host_that_no_certificate_can_name_is_refused(tmp_path: Path, host: str) -> None:
    folder = tmp_path / "secure"
    refused = tidemark("init", "--secure", folder, "--host", host)
    assert refused.returncode == 2
    assert b"cannot be in a certificate: use --host NAME or ADDRESS" in refused.stderr
    assert not folder.exists()


def test_the_printed_lines_are_right_for_ipv6_and_for_a_name_given_twice(tmp_path: Path) -> None:
    hosts = ("--host", "fd00::5", "--host", "*.example.org")
    done = tidemark("init", "--secure", tmp_path, *hosts, "--client", "a", "--client", "a")
    assert done.returncode == 0, done.stderr
    assert b"--listen [::]:19531 --advertise fd00::5\n" in done.stdout
    assert b'connect("[fd00::5]:19531", tls=Tls("ca.pem", "a.pem", "a.key"))' in done.stdout


def test_a_folder_with_content_is_left_alone(tmp_path: Path) -> None:
    folder = made(tmp_path / "secure")
    before = {it.name: it.read_bytes() for it in folder.iterdir()}
    again = tidemark("init", "--secure", folder)
    assert again.returncode == 1
    assert b"is not empty" in again.stderr
    assert {it.name: it.read_bytes() for it in folder.iterdir()} == before


def test_init_without_secure_says_that_nothing_is_needed(tmp_path: Path) -> None:
    refused = tidemark("init", tmp_path / "x")
    assert refused.returncode == 2
    assert b"a broker on loopback needs no preparation" in refused.stderr
