"""`tidemark broadcasts` against a broker that has one in quarantine and one that waits for it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from typer.testing import CliRunner, Result

from broker.cli.main import app
from broker.client import OutcomeUnknown, ResourceKey, Unrecoverable, connect
from broker.model.broadcast import Broadcast, Broadcasted
from broker.model.message import MessageType
from broker.ports.callbacks import FailedForGood
from tests.local_broker import local_broker

CONTROL = "by-dev-rootcoord-dml_0_vcchan"
KEY = ResourceKey.collection("flights")
POISON = int(MessageType.DROP_DATABASE)


async def never(_: Broadcast, __: Broadcasted) -> None:
    raise FailedForGood("no schema [red]")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, BlockingPortal]]:
    broker = local_broker(tmp_path, {POISON: never}, pchannels=2, drain_s=1)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(broker) as started,
    ):
        yield started.address, portal


def tidemark(server: str, *arguments: str) -> Result:
    """In this process: starting nine interpreters would be most of the test."""
    found = CliRunner().invoke(app, ["broadcasts", *arguments, "--server", server])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


async def poison(server: str) -> None:
    async with connect(server) as log:
        with pytest.raises(Unrecoverable):
            await log.broadcast.append(CONTROL, b"x", keys=[KEY], type=POISON)


async def held_up(server: str) -> None:
    async with connect(server) as log:
        with pytest.raises(OutcomeUnknown):
            await log.broadcast.append(CONTROL, b"y", keys=[KEY], deadline_s=1.5)


def test_the_quarantine_is_listed_retried_and_skipped(server: tuple[str, BlockingPortal]) -> None:
    address, portal = server
    assert json.loads(tidemark(address, "list", "--json").stdout) == []
    portal.call(poison, address)
    (sick,) = json.loads(tidemark(address, "quarantine", "list", "--json").stdout)
    assert (sick["state"], sick["poison"], sick["acked"]) == ("quarantine", "no schema [red]", 1)
    assert sick["acked_by"] == "write"
    assert sick["keys"][0] == {
        "domain": "collection_name", "key": "default:flights", "shared": False,
    }  # fmt: skip
    for listing in ("list", "locks"):
        shown = tidemark(address, listing).stdout
        assert sick["name"] in shown
        assert "collection_name default:flights" in shown
    assert "no schema [red]" in tidemark(address, "quarantine", "list").stdout
    portal.call(held_up, address)
    retried = tidemark(address, "quarantine", "retry", sick["name"])
    assert (retried.exit_code, retried.stderr) == (0, "")
    while not json.loads(tidemark(address, "quarantine", "list", "--json").stdout):
        pass  # it fails for good once more
    skipped = tidemark(address, "quarantine", "skip", sick["name"])
    assert skipped.stdout == f"broadcast {sick['name']} skipped\n"
    assert json.loads(tidemark(address, "locks", "--json").stdout) == []
    again = tidemark(address, "quarantine", "skip", sick["name"])
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    assert sick["name"] in again.stderr
