"""From an empty folder to a cluster of three hosts with TLS and users, by the printed commands."""

import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from benchmark.baselines.kafka_server import KafkaNode

from tests.broker.cli.test_secure_init import tidemark
from tests.kafka_node import kafka_node, new_place
from tests.local_etcd import EtcdServer
from tests.roles_processes import RoleProcess, until

__all__ = ["kafka_node"]

HOSTS = ("127.0.71.1", "127.0.71.2", "127.0.71.3")
"""All of them are this machine, and no other test listens there."""
META, WAL = "etcd://127.0.71.1:2379/x", "kafka://127.0.71.1:9092/x"
PATIENT = {"leader_lease_s": "30", "node_lease_s": "30"}
"""Nobody dies here, and a busy machine has pauses."""
NAMED = [word for it in HOSTS for word in ("--host", it)]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "etcd") as server:
        yield server


def made(folder: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
    done = tidemark("init", "--secure", folder, *more)
    assert done.returncode == 0, done.stderr
    return done


def commands(said: bytes) -> list[list[str]]:
    """The words of each printed command."""
    return [shlex.split(it) for it in said.decode().splitlines() if it.startswith("  ")]


def copied(words: list[str], folder: Path, host: Path) -> Path:
    """What `scp` would copy, in the folder of a host; its settings, which name files there."""
    host.mkdir(mode=0o700)
    for name in words[2:-1]:
        if Path(name).is_dir():
            shutil.copytree(name, host / Path(name).name)
        else:
            shutil.copy2(name, host)
    config = host / "tidemark.toml"
    config.write_text(config.read_text().replace(str(folder), str(host)))
    return config


@pytest.mark.slow
async def test_the_printed_commands_make_a_cluster_that_asks_for_the_token(
    tmp_path: Path, etcd: EtcdServer, kafka_node: KafkaNode
) -> None:
    folder = tmp_path / "secure"
    wal = f"{new_place(kafka_node).shown}?replication=1&sync=replicas"
    done = made(folder, *NAMED, "--meta", f"etcd://{etcd.address}/secure", "--wal", wal)
    lines = commands(done.stdout)
    copies = [it for it in lines if it[0] == "scp"]
    configs = [folder / "tidemark.toml"] + [
        copied(it, folder, tmp_path / f"host{number}") for number, it in enumerate(copies, 2)
    ]
    assert not (tmp_path / "host2" / "ca.key").exists()
    assert not (tmp_path / "host2" / "admin.token").exists()
    starts = [it[1:] for it in lines if it[0] == "tidemark" and it[1] in ("coordinator", "node")]
    assert len(starts) == 2 * len(HOSTS)
    with ExitStack() as ends:
        for number, words in enumerate(starts):
            words[words.index("--config") + 1] = str(configs[number // 2])
            process = RoleProcess(*words, pchannels="2", **PATIENT)
            ends.callback(process.__exit__)
            leads = number == 0 or words[0] == "node"
            await (process.ready() if leads else process.stands_by())
        at = ("--config", configs[0])
        stored = [
            tidemark("collection", "create", "flights", *at),
            tidemark("produce", "flights", *at, stdin=b"one\n"),
            tidemark("consume", "flights", "--from", "all", "-e", "-f", "raw", *at),
            *[tidemark(*it[1:]) for it in lines if it[1] == "auth"],
        ]
        for each in stored:
            assert each.returncode == 0, each.stderr
        assert stored[2].stdout == b"one\n"
        (health,) = [it[1:] for it in lines if it[1] == "health"]

        async def healthy() -> bool:
            # Channels move while nodes join.
            return tidemark(*health).returncode == 0

        await until(healthy)
        # The certificate of a host proves nothing about a user.
        refused = tidemark("collection", "list", "--config", nobody(configs[1]))
        assert refused.returncode == 1
        assert b"this broker asks who calls; pass a token" in refused.stderr


def nobody(config: Path) -> Path:
    """Settings of a client that has the certificate of its host and no token."""
    file = config.with_name("nobody.toml")
    server = tomllib.loads(config.read_text())["client"]["server"]
    lines = [
        f'tls_{it} = "{config.with_name(name)}"'
        for it, name in (("ca", "ca.pem"), ("cert", "server.pem"), ("key", "server.key"))
    ]
    file.write_text("\n".join(["[client]", f'server = "{server}"', *lines]))
    return file


def test_the_settings_name_what_hosts_share_and_the_secret_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    made(folder, *NAMED, "--meta", META, "--wal", WAL)
    found = tomllib.loads((folder / "tidemark.toml").read_text())
    coordinators = ",".join(f"{it}:19531" for it in HOSTS)
    assert (found["meta"], found["wal"]) == (META, WAL)
    assert found["coordinator"] == found["client"]["server"] == coordinators
    assert (folder / "data" / "cluster.secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*NAMED, "--meta", META], "--meta and --wal are given together"),
        ([*NAMED, "--wal", WAL], "--meta and --wal are given together"),
        (["--meta", META, "--wal", WAL], "name each host of the cluster by --host"),
        (["--host", "*.x.org", "--meta", META, "--wal", WAL], "without a *"),
        ([*NAMED, "--meta", "etcd:/x", "--wal", WAL], "is no URL of etcd"),
        ([*NAMED, "--meta", META, "--wal", "kafka:/x"], "setting wal"),
    ],
)
def test_a_cluster_without_what_it_needs_is_refused(
    tmp_path: Path, words: list[str], told: str
) -> None:
    refused = tidemark("init", "--secure", tmp_path / "x", *words)
    assert refused.returncode == 2
    assert told in refused.stderr.decode()
    assert not (tmp_path / "x").exists()


def test_addresses_of_ipv6_stand_in_brackets_where_a_port_follows(tmp_path: Path) -> None:
    hosts = ("--host", "fd00::1", "--host", "fd00::2")
    done = made(tmp_path / "secure", *hosts, "--meta", META, "--wal", WAL)
    lines = commands(done.stdout)
    assert ["ssh", "fd00::2", "mkdir", "-p", "-m", "700", str(tmp_path / "secure")] in lines
    assert any(it[0] == "scp" and it[-1] == f"[fd00::2]:{tmp_path}/secure/" for it in lines)
    assert any(it[-1] == "[fd00::2]:19532" for it in lines)
