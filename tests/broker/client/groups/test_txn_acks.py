"""Consume, transform, produce: outputs and acknowledgements take effect together, or never."""

import asyncio
from pathlib import Path

import anyio
import pytest

from broker.client import Client, TransactionExpired, Txn
from broker.client.errors import BadTransaction, InvalidArgument, LeaseLost, OutcomeUnknown
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member import GroupMember
from broker.client.sync import connect as connect_blocking
from broker.client.txn.staged_batch import StagedBatch
from tests.broker.client.groups.test_groups import running, take, until_empty
from tests.local_broker import local_broker


async def payloads(log: Client, target: str) -> list[bytes]:
    found: list[bytes] = []
    async for batch in log.read(target, until="now"):
        found += [it.payload for it in batch.messages]
    return found


async def left(log: Client, target: str = "orders") -> int:
    return sum([it.messages for it in (await log.group("g").lag(target)).values()])


class GivenUp(Exception):
    """A program changes its mind."""


async def given_up(unit: Txn | StagedBatch, batch: LeasedBatch) -> None:
    async with unit as out:
        if isinstance(out, Txn):
            await out.append(b"never")
        else:
            await out.append("bills", b"never", key=b"a")
        await out.ack(batch)
        raise GivenUp


async def opened(log: Client, count: int = 3) -> None:
    await log.collections.create("orders")
    await log.collections.create("bills", shards=2)
    await log.append_batch("orders", [b"%d" % number for number in range(count)])


async def test_a_transaction_appends_and_acknowledges_or_does_neither(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await opened(log)
        async with log.group("g").join("orders") as member:
            batch = await take(member)
            with pytest.raises(GivenUp):
                await given_up(log.txn(batch.vchannel), batch)
            again = await take(member)
            assert (again.payloads, again.deliveries) == ([b"0", b"1", b"2"], 2)
            async with log.txn(again.vchannel) as txn:
                await txn.append(b"bill")
                await txn.ack(again)
            assert await payloads(log, "orders") == [b"0", b"1", b"2", b"bill"]
            assert (await take(member)).payloads == [b"bill"]


async def test_some_messages_of_a_batch_are_acknowledged_in_a_transaction(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await opened(log)
        async with log.group("g").join("orders") as member:
            batch = await take(member)
            a, b, c = batch.messages
            async with log.txn(batch.vchannel) as txn:
                await txn.ack(batch, [b])
                with pytest.raises(InvalidArgument, match="not on lease"):
                    await batch.ack([b])
                await batch.ack([a])
            await batch.nack()
            again = await take(member)
            assert again.payloads == [b"2"]
            assert c.payload == b"2"


async def test_a_staged_batch_takes_from_one_collection_and_gives_to_others(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await opened(log)
        async with log.group("g").join("orders") as member:
            batch = await take(member)
            with pytest.raises(GivenUp):
                await given_up(log.staged(), batch)
            batch = await take(member)
            assert batch.deliveries == 2
            async with log.staged() as out:
                for message in batch.messages:
                    await out.append("bills", b"bill " + message.payload, key=message.payload)
                await out.ack(batch)
                assert await payloads(log, "bills") == []
                done = await out.commit()
            assert not done.already
            assert {batch.vchannel} < {*done.ticks}
            wanted = [b"bill 0", b"bill 1", b"bill 2"]
            assert sorted(await payloads(log, "bills")) == wanted
            assert await left(log) == 0
            async with log.staged():
                pass  # nothing to commit


async def test_batches_at_once_have_apps_of_their_own_which_are_used_again(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await opened(log, 1)

        async def one(number: int) -> str:
            async with log.staged() as out:
                await out.append("bills", b"%d" % number)
                return (await out.commit()).app

        both = await asyncio.gather(one(1), one(2))
        assert await one(3) in both
        assert sorted(await payloads(log, "bills")) == [b"1", b"2", b"3"]


async def test_what_cannot_be_acknowledged_cannot_be_committed(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await opened(log)
        await log.append("bills", b"old", key=b"a")
        group = log.group("g")
        await group.create("orders")
        async with group.join("orders") as member:
            batch = await take(member)
            async with log.txn(batch.vchannel) as txn:
                await txn.ack(batch)
            with pytest.raises(LeaseLost):
                await refused(log, batch)
        async with log.group("g").join("bills") as member:
            other = await take(member)
            with pytest.raises(BadTransaction, match=r"Client\.staged"):
                await refused(log, other, batch.vchannel)
            async with log.txn(other.vchannel, keepalive_s=60) as txn:
                with pytest.raises(LeaseLost):
                    await txn.ack(batch_of(member, other))
                with pytest.raises(LeaseLost):
                    await txn.commit()
        assert b"never" not in await payloads(log, "orders")


async def refused(log: Client, batch: LeasedBatch, vchannel: str = "") -> None:
    async with log.txn(vchannel or batch.vchannel) as txn:
        await txn.append(b"never")
        await txn.ack(batch)


def batch_of(member: GroupMember, batch: LeasedBatch) -> LeasedBatch:
    """The batch, after its member has lost its connection."""
    for stream in member._streams:
        stream.end()
    return batch


async def test_a_transaction_that_expires_gives_its_messages_to_others(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await opened(log)
        group = log.group("g")
        async with group.join("orders") as ann, group.join("orders") as bob:
            # A slow machine may need longer than the first keepalive to get so far.
            for keepalive_s in (0.5, 4, 20):
                batch = await take(ann)
                txn = log.txn(batch.vchannel, keepalive_s=keepalive_s)
                await txn.begin()
                try:
                    await txn.append(b"never")
                    await txn.ack(batch)
                    break
                except TransactionExpired:
                    await batch.nack()
            await ann.close()
            again = await take(bob)
            assert again.payloads == [b"0", b"1", b"2"]
            assert again.deliveries == batch.deliveries + 1
            with pytest.raises(TransactionExpired):
                await txn.commit()
            async with log.txn(batch.vchannel) as late:
                own, late._context = late._context, txn._context
                with pytest.raises(TransactionExpired):
                    await late.ack(again)
                late._context = own
                with pytest.raises(TransactionExpired):
                    await late.commit()
            # The refusal has returned them: they were all of the lease.
            await (await take(bob)).ack()
        assert b"never" not in await payloads(log, "orders")


async def test_what_a_transaction_holds_survives_a_restart_and_is_committed_behind_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await opened(log)
        member = log.group("g").join("orders")
        await member.open()
        batch = await take(member)
        txn = log.txn(batch.vchannel, keepalive_s=60)
        await txn.begin()
        await txn.append(b"bill")
        await txn.ack(batch)
        context, vchannel = txn._context, batch.vchannel
    async with running(tmp_path) as (_, log), log.group("g").join("orders") as member:
        await log.append("orders", b"new")
        # What the transaction holds is not delivered to the new Group either.
        assert (await take(member)).payloads == [b"new"]
        again = log.txn(vchannel)
        again._context, again._name = context, txn._name
        again._vchannel, again._shards = txn._vchannel, txn._shards
        await again.commit()
        assert (await take(member)).payloads == [b"bill"]


async def test_a_group_is_sought_while_a_transaction_holds_messages(tmp_path: Path) -> None:
    """As if it had committed before: what it would acknowledge does not count behind the seek."""
    async with running(tmp_path) as (_, log):
        await opened(log)
        group = log.group("g")
        async with group.join("orders") as member:
            batch = await take(member)
            txn = log.txn(batch.vchannel, keepalive_s=60)
            await txn.begin()
            await txn.ack(batch)
        await until_empty(log, "g", "orders")
        await group.seek("orders", "all")
        await txn.commit()
        async with group.join("orders") as member:
            assert (await take(member)).payloads == [b"0", b"1", b"2"]


async def test_a_cancelled_acknowledgement_prevents_the_commit(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await opened(log)
        async with log.group("g").join("orders") as member:
            batch = await take(member)
            async with log.txn(batch.vchannel) as txn:
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await txn.ack(batch)
                assert txn.cannot_commit
                with pytest.raises(OutcomeUnknown):
                    await txn.commit()


async def test_the_blocking_client_does_the_same(tmp_path: Path) -> None:
    def work(address: str) -> list[bytes]:
        with connect_blocking(address) as log:
            log.collections.create("orders")
            log.collections.create("bills")
            log.append("orders", b"1")
            with log.group("g").join("orders") as member:
                for batch in member:
                    with log.staged() as out:
                        for message in batch.messages:
                            out.append("bills", b"bill " + message.payload)
                        out.ack(batch)
                    break
                log.append("orders", b"2")
                for batch in member:
                    with log.txn(batch.vchannel) as txn:
                        txn.ack(batch)
                    break
            lag = log.group("g").lag("orders")
            assert [it.messages for it in lag.values()] == [0]
            found = []
            for read in log.read("bills", until="now"):
                found += [it.payload for it in read.messages]
            return found

    async with local_broker(tmp_path, pchannels=4) as broker:
        assert await asyncio.to_thread(work, broker.address) == [b"bill 1"]
