"""`tidemark auth`, against a cluster of three processes that ask who calls."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from broker.client import Client, connect
from broker.client.errors import NotAuthenticated, TidemarkError
from tests.broker_process import BrokerProcess, failed_start
from tests.forked_process import COMMAND, run_forked

GUARD_S = 120.0


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
    return run_forked(
        [*COMMAND, *arguments],
        text=True,
        env=environment | variables,
        timeout=GUARD_S,
    )


@dataclass
class Cluster:
    """Its address, and the file with the token of its administrator."""

    address: str
    token_file: Path

    def auth(self, *arguments: str) -> str:
        """What `tidemark auth ...` prints for the administrator."""
        token_file = ("--token-file", str(self.token_file))
        done = run("auth", *arguments, "--server", self.address, *token_file)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secured")
    data, token = folder / "data", folder / "admin.token"
    done = run("auth", "bootstrap", "--data-dir", str(data), "--out", str(token))
    assert done.returncode == 0, done.stderr
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text().strip() not in done.stdout
    with BrokerProcess(data, auth="on", nodes="2", pchannels="4") as process:
        yield Cluster(process.address, token)


def test_a_broker_without_an_administrator_says_which_command_makes_one(tmp_path: Path) -> None:
    complaint = failed_start(tmp_path, auth="on")
    assert f"tidemark auth bootstrap --data-dir {tmp_path}" in complaint


def test_the_command_prints_a_token_once_and_takes_no_file_that_is_there(tmp_path: Path) -> None:
    data, out = str(tmp_path / "data"), tmp_path / "token"
    done = run("auth", "bootstrap", "--data-dir", data)
    assert done.stdout.startswith("tm_")
    assert done.stdout.count("\n") == 1
    out.write_text("precious")
    refused = run("auth", "bootstrap", "--data-dir", data, "--out", str(out))
    assert refused.returncode == 2
    assert "exists; name a new file" in refused.stderr
    assert out.read_text() == "precious"


def test_without_a_token_a_command_is_refused_and_told_how_to_show_one(cluster: Cluster) -> None:
    for variables in ({}, {"TIDEMARK_TOKEN": "tm_00_" + "x" * 43}):
        done = run("health", "--server", cluster.address, **variables)
        assert done.returncode == 1
        assert "not authenticated: " in done.stderr
        assert "tidemark auth token add USER" in done.stderr


def test_users_roles_and_tokens_are_made_listed_and_removed(cluster: Cluster) -> None:
    assert cluster.auth("role", "add", "flyer", "*:collection:f*") == "role flyer added\n"
    assert cluster.auth("user", "add", "ann", "--role", "flyer") == "user ann added\n"
    token = cluster.auth("token", "add", "ann", "--expires", "1d", "--note", "a note").strip()
    listed = json.loads(cluster.auth("token", "list", "--json"))
    mine = [it for it in listed if it["user"] == "ann"]
    assert [it["note"] for it in mine] == ["a note"]
    assert mine[0]["expires_ms"] - mine[0]["made_ms"] == 86_400_000
    for what in ("token", "user", "role"):
        assert token.split("_", 2)[2] not in cluster.auth(what, "list")
    assert "flyer" in cluster.auth("role", "list")
    whoami = run("auth", "whoami", "--json", "--server", cluster.address, TIDEMARK_TOKEN=token)
    assert json.loads(whoami.stdout)["grants"] == ["*:collection:f*"]
    made = run("collection", "create", "fx", "--server", cluster.address, TIDEMARK_TOKEN=token)
    assert made.returncode == 0, made.stderr
    other = run("collection", "create", "x", "--server", cluster.address, TIDEMARK_TOKEN=token)
    assert "permission denied: 'ann' may not define" in other.stderr
    cluster.auth("token", "revoke", mine[0]["id"])
    cluster.auth("user", "drop", "ann")
    cluster.auth("role", "drop", "flyer")
    assert "ann" not in cluster.auth("user", "list")


@pytest.mark.parametrize("expires", ["1", "d", "0d", "1y", "-1d"])
def test_a_duration_that_is_none_is_wrong_usage(cluster: Cluster, expires: str) -> None:
    done = run(
        *("auth", "token", "add", "admin", f"--expires={expires}", "--server", cluster.address),
        *("--token-file", str(cluster.token_file)),
    )
    assert done.returncode == 2
    assert "is no duration" in done.stderr


@pytest.mark.parametrize("content", [None, ""])
def test_a_token_file_that_cannot_be_used_is_wrong_usage(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    done = run("health", "--token-file", str(file))
    assert done.returncode == 2
    assert "token_file (--token-file): " in done.stderr
    assert "name the file of a token" in done.stderr or "must hold a token" in done.stderr


async def test_revoking_a_token_ends_streams_on_every_process(cluster: Cluster) -> None:
    admin_token = cluster.token_file.read_text().strip()
    async with connect(cluster.address, token=admin_token) as root:
        # On every pchannel, so on both nodes.
        await root.collections.create("everywhere", shards=4)
        await root.auth.add_role("reads", ["consume:collection:everywhere"])
        await root.auth.add_user("bob", ["reads"])
        made = await root.auth.add_token("bob")
        nodes = {it.node_id for it in await root.admin.channels()}
        assert len(nodes) == 2
        ended: list[TidemarkError] = []
        async with connect(cluster.address, token=made.text) as bob:
            vchannels = (await bob.collections.get("everywhere")).vchannels
            async with anyio.create_task_group() as tasks:
                for vchannel in vchannels:
                    opened = anyio.Event()
                    tasks.start_soon(reads, bob, vchannel, opened, ended)
                    await root.append(vchannel, b"x")
                    with anyio.fail_after(GUARD_S):
                        await opened.wait()
                await root.auth.revoke_token(made.info.id)
    assert {type(it) for it in ended} == {NotAuthenticated}


async def reads(
    log: Client, vchannel: str, opened: anyio.Event, ended: list[TidemarkError]
) -> None:
    while True:
        try:
            async for _ in log.read(vchannel, start="all"):
                opened.set()
        except TidemarkError as error:
            if opened.is_set():
                ended.append(error)
                return
            # A node reads a new token half a second after it was made.
            await anyio.sleep(0.05)
