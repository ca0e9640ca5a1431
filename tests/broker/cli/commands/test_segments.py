"""`tidemark segments` against a broker: shown, sealed, flushed, acknowledged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from typer.testing import CliRunner

from broker.cli.main import app
from broker.client import Message, connect
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages
from tests.local_broker import local_broker

WAIT_S_MAX = 60.0
"""Against hanging only."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, BlockingPortal]]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, pchannels=1)) as started,
    ):
        yield started.address, portal


def tidemark(server: str, *arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["segments", *arguments, "--server", server])
    assert found.exit_code == code, found
    return found.stdout + found.stderr


async def fill(server: str) -> None:
    """A collection that its log knows, with three rows in one segment that the master lists."""
    async with connect(server) as log:
        created = await log.collections.create("flights")
        (vchannel,) = created.vchannels
        header = messages.CreateCollectionMessageHeader(
            collection_id=created.id, partition_ids=[41]
        )
        message = Message(b"", type=MessageType.CREATE_COLLECTION, header=bytes(header))
        await log.raw_append(vchannel, message)
        await log.append_batch(vchannel, [b"row"] * 3)
        with anyio.fail_after(WAIT_S_MAX):
            while not await log.master.show_segments(created.id):  # noqa: ASYNC110 - of a broker
                await anyio.sleep(0.05)


async def wait_for_flush(server: str) -> None:
    async with connect(server) as log:
        with anyio.fail_after(WAIT_S_MAX):
            while not [it async for it in log.master.list_flushes()]:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.05)


def test_a_segment_is_shown_sealed_and_acknowledged(server: tuple[str, BlockingPortal]) -> None:
    address, portal = server
    portal.call(fill, address)
    row: dict[str, Any]
    (row,) = json.loads(tidemark(address, "flights", "--json"))
    assert (row["state"], row["partition"], row["origin"]) == ("growing", 41, "log")
    id = str(row["segment"])
    assert id in tidemark(address, "flights", "--partition", "41", "--state", "growing")
    assert json.loads(tidemark(address, "flights", "--state", "flushed", "--json")) == []
    assert "on 1 vchannels" in tidemark(address, "seal", str(row["collection"]))
    portal.call(wait_for_flush, address)
    (flushed,) = json.loads(tidemark(address, "flushes", "--json"))
    assert (flushed["segment"], flushed["rows"]) == (row["segment"], 3)
    assert flushed["close_tick"] > flushed["open_tick"]
    assert "flushed" in tidemark(address, "states", id)
    answer = tidemark(address, "acknowledge", id, "5")
    assert "1 acknowledged" in answer
    assert "not flushed, or unknown: 5" in answer
    assert json.loads(tidemark(address, "flushes", "--json")) == []
    assert json.loads(tidemark(address, "states", "5", "--json")) == [
        {"segment": 5, "state": "not_exist"}
    ]


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["nobody"], "nobody"),
        (["77"], "there is no collection 77"),
        (["flights", "--partition", "5"], "has no partition 5"),
        (["seal", "77"], "there is no collection 77"),
    ],
)
def test_what_is_unknown_is_named(
    server: tuple[str, BlockingPortal], arguments: list[str], cause: str
) -> None:
    address, portal = server
    portal.call(fill, address)
    assert cause in tidemark(address, *arguments, code=1)
