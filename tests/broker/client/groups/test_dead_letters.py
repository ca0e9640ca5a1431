"""Poison over a real broker: it dies alone, can be read, and can be put back."""

from pathlib import Path

import anyio
import pytest

from broker.client.errors import (
    AlreadyExists,
    BadTarget,
    InvalidArgument,
    NoSuchCollection,
    NoSuchGroup,
)
from broker.client.groups.dead_letters import letter_of
from broker.client.message import Message
from tests.broker.client.groups.test_groups import running, take, until_empty


async def test_poison_that_is_never_acknowledged_dies_alone_and_is_put_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        sent = [Message(b"%d" % it, key=b"k%d" % it, properties={"n": str(it)}) for it in range(9)]
        await log.append_messages("trains", sent, atomic=False)
        group = log.group("workers")
        done: list[bytes] = []
        async with group.join("trains", deliveries_max=3, prefetch_bytes=1) as member:
            alone = 0
            while not alone or len(done) < 8:
                batch = await take(member)
                if b"4" in batch.payloads:
                    alone += batch.alone
                    assert batch.deliveries <= 3
                    await batch.nack()
                    continue
                done += batch.payloads
                await batch.ack()
            (view,) = await group.describe("trains")
            assert view.group.limit is not None
            assert (view.group.limit.deliveries_max, view.group.limit.origin) == (3, "trains")
            while view.group.dying:
                (view,) = await group.describe("trains")
        assert sorted(done) == sorted(b"%d" % it for it in range(9) if it != 4)
        (letter,) = await group.dead()
        assert letter.message.payload == b"4"
        assert (letter.message.key, letter.properties) == (b"k4", {"n": "4"})
        assert (letter.origin, letter.group, letter.deliveries) == ("trains", "workers", 3)
        assert "3 times" in letter.cause
        assert letter.vchannel == view.group.key.vchannel
        assert await group.redrive("trains") == 1
        assert await group.redrive("trains") == 0
        async with group.join("trains") as member:
            again = await take(member)
            (message,) = again.messages
            assert (message.payload, message.key) == (b"4", b"k4")
            assert message.properties == {"n": "4"}
            assert not again.alone
            await again.ack()


async def test_a_member_rejects_what_it_cannot_read(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        await log.append_batch("trains", [b"a", b"b", b"c"], keys=[b"k"] * 3)
        group = log.group("workers")
        await group.create("trains", deliveries_max=5)
        async with group.join("trains") as member:
            batch = await take(member)
            await batch.reject("not JSON", batch.messages[1:2])
            with pytest.raises(InvalidArgument, match="2000 characters"):
                await batch.reject("x" * 2000)
            assert not batch.settled
            await batch.ack()
            await batch.over()
        while any(it.group.dying for it in await group.describe("trains")):
            pass
        (letter,) = await group.dead()
        assert (letter.message.payload, letter.cause) == (b"b", "not JSON")
        # A second collection may have a group of this name: they share the dead letters.
        await log.collections.create("ships")
        await group.create("ships", deliveries_max=5)
        assert await group.redrive("ships") == 0
        assert len(await group.dead()) == 1
        assert letter_of(batch.messages[0]) is None


async def test_limits_are_changed_and_bad_ones_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        group = log.group("workers")
        with pytest.raises(NoSuchCollection, match="no dead letters"):
            await group.dead()
        for bad in (1, 1001):
            with pytest.raises(InvalidArgument, match=f"deliveries_max of {bad}"):
                await group.create("trains", deliveries_max=bad)
        with pytest.raises(NoSuchGroup):
            await group.alter("trains", deliveries_max=5)
        await group.create("trains", lease_s=9)
        with pytest.raises(AlreadyExists):
            await group.create("trains")
        (view,) = await group.alter("trains", deliveries_max=5)
        assert view.group.lease_ms == 9000
        assert view.group.limit is not None
        (view,) = await group.alter("trains", lease_s=3)
        assert (view.group.lease_ms, view.group.limit) == (3000, None)
        async with group.join("trains") as member:
            await log.append("trains", b"a")
            batch = await take(member)
            with pytest.raises(InvalidArgument, match="no dead letters"):
                await batch.reject("bad")
        await until_empty(log, "workers")
        await log.collections.create("small.dead")
        ships = await log.collections.create("ships", shards=4)
        with pytest.raises(BadTarget, match=r"'small\.dead' exists already"):
            await log.group("small").create("ships", deliveries_max=5)
        assert len(ships.vchannels) == 4


async def test_a_last_delivery_comes_although_steps_that_waited_for_it_were_cancelled(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        group = log.group("workers")
        async with group.join("trains", deliveries_max=2, prefetch_bytes=1, lease_s=3600) as member:
            await log.append("trains", b"poison")
            first = await take(member)
            await log.append("trains", b"slow")
            await first.nack(delay_s=0.3)
            slow = await take(member)
            assert slow.payloads == [b"slow"]
            for _ in range(5):
                # It has other things to do, and another task of it processes `slow`.
                with anyio.move_on_after(0.3):
                    raise AssertionError((await take(member)).payloads)
            await slow.ack()
            with anyio.fail_after(60):
                last = await take(member)
            assert last.alone
            assert last.payloads == [b"poison"]
            await last.ack()
