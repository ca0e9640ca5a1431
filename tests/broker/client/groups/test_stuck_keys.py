"""What keeps a group from going on is told: a key that nobody settles, and what stages hold."""

from pathlib import Path
from zlib import crc32

import pytest

from broker.cli.groups.unsettled_lines import stuck_text, unsettled_lines
from broker.client import Message
from broker.core.groups import ordered_book
from broker.model.groups.unsettled import Unsettled
from broker.node.state import channel_groups
from tests.broker.client.groups.test_groups import running, take, until_empty
from tests.broker.metrics.test_exposition import at_hand, families, value


async def test_a_key_that_nobody_settles_is_named_with_what_waits_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered_book, "KEYED_UNITS_MAX", 8)
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        keys = [b"stuck"] * 6 + [b"other"] * 20
        messages = [Message(b"%d" % at, key=key) for at, key in enumerate(keys)]
        await log.append_messages("trains", messages, atomic=False)
        group = log.group("workers", mode="ordered", by="key")
        async with group.join("trains", lease_s=60) as member:
            batch = await take(member)
            await batch.ack([it for it in batch.messages if it.key == b"other"])
            # Until the group has read as much as it may.
            while True:
                (view,) = await group.describe("trains")
                if view.first is not None and view.first.full:
                    break
                batch = await take(member)
                await batch.ack([it for it in batch.messages if it.key == b"other"])
            first = view.first
            assert (first.key_hash, first.state) == (crc32(b"stuck"), Unsettled.LEASED)
            assert (first.behind, first.unsettled, first.unsettled_max) == (5, 8, 8)
            assert (first.deliveries, view.held) == (1, ())
            (line,) = unsettled_lines(view)
            assert f"key hash {crc32(b'stuck'):08x} is stuck at tick {first.tick}" in line
            assert "5 messages wait behind it" in line
            assert "nothing new is delivered" in line
            assert f"--from tick:{first.tick} --limit 1` shows it" in line
            assert "tidemark group alter --deliveries-max" in line
            assert stuck_text([view]).startswith("full, key hash")


async def test_what_a_stage_holds_is_told_until_it_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        await log.append("trains", b"in")
        group = log.group("workers")
        async with group.join("trains") as member:
            batch = await take(member)
            async with log.txn(batch.vchannel) as txn:
                await txn.append(b"out")
                await txn.ack(batch)
                (view,) = await group.describe("trains")
                (held,) = view.held
                assert (held.ranges, held.stage) == (1, "")
                assert held.last_tick >= held.txn
                assert held.ends_ms > 0
                (line,) = unsettled_lines(view)
                assert f"transaction {held.txn} holds 1 acknowledged ranges since" in line
                assert "it is rolled back at" in line
            (view,) = await group.describe("trains")
            assert view.held == ()
            assert view.first is None
            out = await take(member)
            await out.ack()
        await until_empty(log, "workers")


async def test_health_and_metrics_tell_of_a_full_group_and_of_what_is_held_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered_book, "KEYED_UNITS_MAX", 2)
    monkeypatch.setattr(channel_groups, "HELD_MS", 0)
    async with at_hand(tmp_path) as (broker, log):
        await log.collections.create("trains", shards=1)
        messages = [Message(b"%d" % at, key=b"k") for at in range(5)]
        await log.append_messages("trains", messages, atomic=False)
        assert (await log.admin.health()).warnings == ()
        group = log.group("workers", mode="ordered", by="key")
        async with group.join("trains") as member:
            batch = await take(member)
            place = {"vchannel": batch.vchannel, "group": "workers"}
            place["channel"] = batch.vchannel.rpartition("_")[0]
            (full,) = (await log.admin.health()).warnings
            assert f"group 'workers' on {batch.vchannel} delivers nothing new" in full
            found = await families(broker.http)
            assert value(found, "group_full", **place) == 1
            assert value(found, "group_first_unsettled_seconds", **place) > 0
            assert value(found, "group_blocked_messages", **place) == 1
            assert value(found, "group_held_seconds", channel=place["channel"]) == 0
            async with log.txn(batch.vchannel) as txn:
                await txn.ack(batch)
                _, held = (await log.admin.health()).warnings
                assert "holds acknowledgements of group 'workers' for" in held
                found = await families(broker.http)
                assert value(found, "group_held_seconds", channel=place["channel"]) >= 0
