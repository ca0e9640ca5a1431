"""From an empty folder to a cluster with TLS, by the commands that `tidemark init` prints."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.client import ConnectionLost, Tls, connect
from tests.broker_process import BrokerProcess
from tests.forked_process import COMMAND, run_forked

GUARD_S = 120.0
NOTHING: Mapping[str, str] = {}


def tidemark(
    *words: str | Path, stdin: bytes = b"", environment: Mapping[str, str] = NOTHING
) -> subprocess.CompletedProcess[bytes]:
    return run_forked(
        [*COMMAND, *map(str, words)],
        given=stdin,
        timeout=GUARD_S,
        env={**os.environ, **environment},
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
        for words in (
            ("collection", "create", "flights", "--shards", "2"),
            ("auth", "user", "add", "app", "--role", "reader"),
        ):
            done = tidemark(*words, *at)
            assert done.returncode == 0, done.stderr
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


def test_the_printed_lines_work_and_nobody_does_anything_without_the_token(tmp_path: Path) -> None:
    done = tidemark("init", "--secure", tmp_path / "secure", "--host", "localhost")
    assert done.returncode == 0, done.stderr
    serve, *calls = [
        line.split()[1:] for line in done.stdout.decode().splitlines() if "  tidemark " in line
    ]
    config = serve[serve.index("--config") + 1]
    with BrokerProcess(tmp_path / "data", pchannels="1", config=config) as broker:
        for words in calls:
            assert config in words
            called = tidemark(*words, "--server", broker.listen)
            assert called.returncode == 0, called.stderr
        # The certificate alone, of a user and of nobody.
        given = tomllib.loads(Path(config).read_text())["client"]
        profile = {name: given[name] for name in ("tls_ca", "tls_cert", "tls_key")}
        assert whoami(broker.listen, profile).stdout.startswith(b"client, by certificate")

        profile["tls_cert"] = str(Path(config).with_name("server.pem"))
        profile["tls_key"] = str(Path(config).with_name("server.key"))
        refused = whoami(broker.listen, profile)
        assert refused.returncode == 1
        assert b"this broker asks who calls; pass a token" in refused.stderr
        assert b"Traceback" not in refused.stderr


def whoami(server: str, files: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    environment = {f"TIDEMARK_{name.upper()}": value for name, value in files.items()}
    return tidemark("auth", "whoami", "--server", server, environment=environment)


def test_the_token_is_in_one_file_for_its_owner_and_the_broker_gets_a_hash(tmp_path: Path) -> None:
    done = tidemark("init", "--secure", tmp_path / "secure")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "secure"
    token = (folder / "admin.token").read_text().strip()
    assert re.fullmatch("tm_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", token)
    secret = token.split("_", 2)[2]
    assert (folder / "admin.token").stat().st_mode & 0o777 == 0o600
    holders = [it.name for it in folder.iterdir() if secret in it.read_text()]
    assert holders == ["admin.token"]
    assert secret.encode() not in done.stdout + done.stderr
    with BrokerProcess(tmp_path / "data", pchannels="1", config=str(folder / "tidemark.toml")):
        pass
    kept = [it for it in (tmp_path / "data").rglob("*") if it.is_file()]
    assert kept
    assert not [it for it in kept if secret.encode() in it.read_bytes()]


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


def test_no_certificate_has_the_name_of_the_administrator(tmp_path: Path) -> None:
    refused = tidemark("init", "--secure", tmp_path / "x", "--client", "admin")
    assert refused.returncode == 2
    assert b"'admin' is the user who has the token" in refused.stderr
    assert not (tmp_path / "x").exists()
