"""Retention of collections through the client: set, changed, described, and refused."""

from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from broker.client import InvalidArgument, NoSuchCollection, connect
from broker.client.errors import AlreadyExists, BadTarget, NotOffered
from broker.client.sync import connect as sync_connect
from broker.model.retention.policy import Retention
from tests.local_broker import local_broker

DAY_MS = 86_400_000


async def test_limits_are_set_changed_one_by_one_and_shown_by_every_call(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        made = await log.collections.create("c", shards=2, retention_ms=DAY_MS)
        assert made.retention == Retention(0, DAY_MS)
        altered = await log.collections.alter("c", retention_bytes=1 << 20)
        assert altered.retention == Retention(1 << 20, DAY_MS)
        done = await log.master.alter_collection("c", retention_ms=-1)
        assert done.tick > 0
        assert (await log.collections.get("c")).retention == Retention(1 << 20, 0)
        (listed,) = await log.collections.list()
        assert listed.retention == Retention(1 << 20, 0)
        described = await log.master.describe_collection("c")
        assert described.retention == Retention(1 << 20, 0)
        other = await log.master.create_collection("d", retention_ms=5000)
        assert other.retention == Retention(0, 5000)
        assert (await log.collections.create("plain")).retention.keeps_all
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        assert (await log.collections.get("c")).retention == Retention(1 << 20, 0)
        assert (await log.collections.get("d")).retention == Retention(0, 5000)


async def test_with_exist_ok_a_named_limit_that_differs_is_an_error(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        made = await log.collections.create("c", retention_ms=DAY_MS)
        assert await log.collections.create("c", exist_ok=True) == made
        assert await log.collections.create("c", exist_ok=True, retention_ms=DAY_MS) == made
        with pytest.raises(AlreadyExists, match="its retention_ms is 86400000, not 5000"):
            await log.collections.create("c", exist_ok=True, retention_ms=5000)
        with pytest.raises(AlreadyExists, match="its retention_bytes is -1, not 65536"):
            await log.collections.create("c", exist_ok=True, retention_bytes=65_536)


@pytest.mark.parametrize(
    ("limits", "error", "words"),
    [
        ({"retention_ms": 0}, InvalidArgument, "retention_ms is 0; it must be 1000 to"),
        ({"retention_ms": -2}, InvalidArgument, "retention_ms is -2"),
        ({"retention_ms": 999}, InvalidArgument, "or -1 for no limit"),
        ({"retention_ms": 1 << 62}, InvalidArgument, "check its unit"),
        ({"retention_bytes": 0}, InvalidArgument, "purge the collection to empty it"),
        ({"retention_bytes": (1 << 63) - 1}, InvalidArgument, "retention_bytes is 9223372036"),
        ({"retention_ms": 1 << 63}, BadTarget, "takes more than 64 bits"),
        ({}, InvalidArgument, "the request changes nothing"),
    ],
)
async def test_a_limit_that_makes_no_sense_is_refused_and_changes_nothing(
    tmp_path: Path, limits: dict[str, Any], error: type[Exception], words: str
) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        made = await log.collections.create("c", retention_ms=DAY_MS)
        calls: list[Any] = [log.collections.alter, log.master.alter_collection]
        calls += [log.collections.create, log.master.create_collection] if limits else []
        for call in calls:
            name = "c" if call in calls[:2] else "new"
            with pytest.raises(error, match=words):
                await call(name, **limits)
        assert await log.collections.list() == [made]


async def test_a_collection_that_is_unknown_cannot_be_altered(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        with pytest.raises(NoSuchCollection):
            await log.collections.alter("unknown", retention_ms=5000)


async def test_a_server_without_limits_is_not_taken_for_one_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        # What a client of the earlier release sends: its server knows no limits.
        monkeypatch.setattr("broker.client.cluster.kept_limits.limits_on_wire", lambda _: {})
        with pytest.raises(NotOffered, match="has no retention or compaction of collections"):
            await log.collections.create("c", retention_ms=5000)


def test_the_blocking_client_alters_as_well(tmp_path: Path) -> None:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_broker(tmp_path, pchannels=1)) as broker,
        sync_connect(broker.address) as log,
    ):
        log.collections.create("c", retention_bytes=1 << 20)
        assert log.collections.alter("c", retention_ms=5000).retention == Retention(1 << 20, 5000)
