"""Batches of more messages than one request may name are settled by naming them, too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.client import Client
from broker.client.errors import InvalidArgument, LeaseLost
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member import GroupMember
from broker.core.groups.group_changes import SPANS_MAX
from tests.broker.client.groups.test_groups import running, take

COUNT = 2 * SPANS_MAX + 100


@asynccontextmanager
async def leased(
    path: Path, by: str = ""
) -> AsyncIterator[tuple[Client, GroupMember, LeasedBatch]]:
    async with running(path) as (_, log):
        await log.collections.create("trains")
        await log.append_batch("trains", [b"%d" % number for number in range(COUNT)])
        group = log.group("workers", mode="ordered", by="vchannel") if by else log.group("workers")
        await group.create("trains", deliveries_max=5)
        async with group.join("trains") as member:
            batch = await take(member)
            assert len(batch) == COUNT
            yield log, member, batch


async def left(log: Client) -> int:
    return sum([it.messages for it in (await log.group("workers").lag("trains")).values()])


@pytest.mark.parametrize("by", ["", "vchannel"])
async def test_all_messages_are_acknowledged_by_naming_them(tmp_path: Path, by: str) -> None:
    async with leased(tmp_path, by) as (log, _, batch):
        await batch.ack(batch.messages)
        assert batch.settled
        assert await left(log) == 0
        with pytest.raises(LeaseLost):
            await batch.ack(batch.messages)


async def test_one_that_was_acknowledged_before_is_refused_among_thousands(tmp_path: Path) -> None:
    async with leased(tmp_path) as (log, _, batch):
        await batch.ack([batch.messages[17]])
        with pytest.raises(InvalidArgument, match="acknowledged before"):
            await batch.ack(batch.messages)
        assert await left(log) == COUNT
        await batch.ack([*batch.messages[:17], *batch.messages[18:]])
        assert batch.settled
        assert await left(log) == 0


async def test_more_pieces_than_one_request_names_are_given_back_in_several(tmp_path: Path) -> None:
    async with leased(tmp_path) as (_, member, batch):
        odd = batch.messages[1::2]
        assert len(odd) > SPANS_MAX
        await batch.nack(odd)
        await batch.ack()
        found: list[bytes] = []
        while len(found) < len(odd):
            again = await take(member)
            assert again.deliveries == 2
            found += again.payloads
            await again.ack()
        assert sorted(found) == sorted([it.payload for it in odd])


async def test_an_ordered_group_counts_all_that_are_given_back_in_several_requests(
    tmp_path: Path,
) -> None:
    async with leased(tmp_path, "vchannel") as (_, member, batch):
        await batch.nack(batch.messages[1::2])
        await batch.ack([batch.messages[0]])
        for payload, deliveries in ((b"1", 2), (b"2", 1), (b"3", 2)):
            again = await take(member)
            assert (again.payloads, again.deliveries) == ([payload], deliveries)
            await again.ack()


async def test_a_part_that_is_refused_says_which_messages_are_acknowledged(tmp_path: Path) -> None:
    async with leased(tmp_path) as (_, _member, batch):
        gaps = batch.messages[1::2]
        await batch.nack([gaps[0]], delay_s=60)
        last = len(gaps) - SPANS_MAX
        with pytest.raises(InvalidArgument, match=f"acknowledged before.*; {last} .*are settled"):
            await batch.nack(gaps)


async def test_all_messages_are_rejected_by_naming_them(tmp_path: Path) -> None:
    async with leased(tmp_path) as (log, _, batch):
        await batch.reject("not today", batch.messages)
        assert batch.settled
        while await left(log):
            pass
        assert len(await log.group("workers").dead()) == COUNT


async def test_a_transaction_acknowledges_them_with_its_commit(tmp_path: Path) -> None:
    async with leased(tmp_path) as (log, member, batch):
        async with log.txn(batch.vchannel) as txn:
            await txn.ack(batch, batch.messages)
            await txn.rollback()
        again = await take(member)
        assert (len(again), again.deliveries) == (COUNT, 2)
        async with log.txn(again.vchannel) as txn:
            await txn.ack(again, again.messages)
        assert await left(log) == 0


async def test_a_transaction_acknowledges_in_several_requests_behind_a_nack(tmp_path: Path) -> None:
    async with leased(tmp_path, "vchannel") as (log, member, batch):
        *rest, last = batch.messages
        await batch.nack([last])
        async with log.txn(batch.vchannel) as txn:
            await txn.ack(batch, rest)
        assert batch.settled
        again = await take(member)
        assert (again.payloads, again.deliveries) == ([last.payload], 2)
        await again.ack()
        assert await left(log) == 0
