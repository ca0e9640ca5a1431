"""`tidemark commits` against a broker: who has committed what."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from typer.testing import CliRunner

from broker.cli.main import app
from broker.client import connect
from tests.local_broker import local_broker


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, BlockingPortal]]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, pchannels=1)) as started,
    ):
        yield started.address, portal


def tidemark(server: str, *arguments: str) -> str:
    found = CliRunner().invoke(app, ["commits", *arguments, "--server", server])
    assert found.exit_code == 0, found
    return found.stdout


async def commit(server: str) -> None:
    async with connect(server) as log:
        await log.commit_batch("nightly copy", 7, [])


def test_each_app_is_a_row(server: tuple[str, BlockingPortal]) -> None:
    address, portal = server
    assert json.loads(tidemark(address, "--json")) == []
    portal.call(commit, address)
    (row,) = json.loads(tidemark(address, "--json"))
    assert (row["app"], row["batch"], row["age_ms"]) == ("nightly copy", 7, 0)
    assert (row["under_way"], row["state"]) == (None, "")
    told = tidemark(address).split("\n")
    assert [it for it in told if "nightly copy" in it and " 7 " in it]
