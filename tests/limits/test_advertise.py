"""Brokers on another host: what remote clients are given, and what they say when it is wrong."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts.namespaces import Host, NoNamespaces

from broker.client import InvalidArgument
from broker.client.lifetime import ClientLifetime
from broker.client.net.connection import Connection
from schemas.generated.tidemark import v1
from tests.broker_process import BrokerProcess, failed_start, free_port
from tests.missing_part import missing_part
from tests.network_namespaces import SERVER_IP, WiredHost, two_hosts
from tests.roles_processes import RoleProcess

GUARD_S = 60.0
LINES = b"".join(b"%d\n" % it for it in range(200))


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[WiredHost, WiredHost]]:
    try:
        with two_hosts() as made:
            yield made
    except NoNamespaces as why:
        missing_part(f"network namespaces cannot be made here: {why}")


def tidemark(
    host: Host | None, *arguments: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command on a host; on this machine for None."""
    inside = host.inside if host is not None else ()
    return subprocess.run(
        [*inside, sys.executable, "-m", "broker", *arguments],
        input=stdin,
        capture_output=True,
        timeout=GUARD_S,
        check=False,
    )


def moves_lines(host: Host, address: str) -> None:
    """Appends to every pchannel, and reads back, as a remote client does."""
    created = tidemark(host, "collection", "create", "far", "--shards", "4", "--server", address)
    assert created.returncode == 0, created.stderr
    stored = tidemark(host, "produce", "far", "--server", address, stdin=LINES)
    assert stored.returncode == 0, stored.stderr
    options = ("--format", "raw", "--until-now", "--server", address)
    read = tidemark(host, "consume", "far", *options)
    assert sorted(read.stdout.split()) == sorted(LINES.split()), read.stderr


def test_a_remote_client_of_a_wildcard_is_given_the_outside_address(
    tmp_path: Path, hosts: tuple[WiredHost, WiredHost]
) -> None:
    server, client = hosts
    with BrokerProcess(
        tmp_path, "0.0.0.0:0", inside=server.inside, pchannels="4", insecure="true"
    ) as broker:
        assert broker.listen.startswith("0.0.0.0:")
        assert broker.address == f"{SERVER_IP}:{broker.port}"
        moves_lines(client, broker.address)


def test_a_remote_client_of_nodes_is_given_an_address_of_each(
    tmp_path: Path, hosts: tuple[WiredHost, WiredHost]
) -> None:
    """The wildcard of the parent holds for its nodes, and so does the host that it advertises."""
    server, client = hosts
    settings = {"pchannels": "4", "nodes": "2", "advertise": SERVER_IP, "insecure": "true"}
    with BrokerProcess(tmp_path, "0.0.0.0:0", inside=server.inside, **settings) as broker:
        moves_lines(client, broker.address)
        channels = tidemark(client, "channels", "--json", "--server", broker.address).stdout
        assert channels.count(SERVER_IP.encode()) == 4


async def test_a_node_redirects_to_the_address_that_its_coordinator_advertises(
    tmp_path: Path,
) -> None:
    """It reaches the coordinator itself at the address that it was started with."""
    at, outside = f"127.0.0.1:{free_port()}", "broker.example.org:7"
    data = ("--data-dir", str(tmp_path), "--pchannels", "1")
    with RoleProcess("coordinator", *data, "--listen", at, "--advertise", outside) as coordinator:
        assert await coordinator.ready() == at
        place = ("--data-dir", str(tmp_path), "--coordinator", at, "--listen", "127.0.0.1:0")
        with RoleProcess("node", *place) as node:
            address = await node.ready()
            connection = Connection(address, cluster="by-dev", lifetime=ClientLifetime())
            with pytest.raises(InvalidArgument, match=f"connect to {outside}"):
                await connection.call(
                    "/tidemark.v1.Commits/List",
                    v1.ListCommitsRequest(),
                    v1.ListCommitsResponse,
                    deadline_s=GUARD_S,
                )
            connection.close()


def test_a_wildcard_with_several_outside_addresses_is_refused_before_anything_is_made(
    tmp_path: Path, hosts: tuple[WiredHost, WiredHost]
) -> None:
    server, _ = hosts
    server.add_address("fd77::1/64")
    data = tmp_path / "data"
    complaint = failed_start(data, listen="[::]:0", inside=server.inside)
    assert "pass --advertise HOST[:PORT], the address at which" in complaint
    assert f"(addresses of this machine: {SERVER_IP}, fd77::1)" in complaint
    assert not data.exists()
    with BrokerProcess(
        data,
        "[::]:0",
        inside=server.inside,
        pchannels="1",
        advertise="fd77::1",
        insecure="true",
    ) as broker:
        assert broker.address == f"[fd77::1]:{broker.port}"
