"""Readers of a dropped collection whose space is back: who misses a message is told."""

from collections.abc import Sequence

import pytest

from actors.testing import run_seeded
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term, TxnId
from broker.model.message import PURGE, AppendedInTxn, MessageType
from broker.model.position import ReadPosition, StartFrom
from broker.model.record import Record
from broker.model.retention.dead import Contents
from broker.model.retention.policy import SealedSegment
from broker.model.txn import TxnContext
from broker.node.appender_messages import SealLog
from broker.node.scanner_messages import CloseScanner, Delivery
from broker.wal.memory_wal import Fault, MemoryLog, MemoryWal
from tests.broker.node.space.test_held_space import LIMITS, HoldsOf, cursor
from tests.broker.node.space.test_purging import land, read
from tests.broker.node.space.test_readers_of_purged import end_scanner, take
from tests.broker.node.space.test_reclamation import (
    BODY,
    DROPPED,
    KEPT,
    SEGMENT_BYTES,
    CatalogFake,
    fill,
    size,
    statistics,
)
from tests.broker.node.world import Reader, World, message, running_node

OF_DROPPED = 80
"""Messages of `fill`."""


async def last_answer(reader: Reader, world: World) -> Delivery | Refusal:
    """The refusal, or the answer with which the reader is at the end."""
    while True:
        answer = await reader.pull()
        if isinstance(answer, Refusal) or reader.cursor.next_id == (await world.offsets()).next_id:
            return answer


async def place(world: World, id: MessageId) -> ReadPosition:
    """Where a reader from this message on begins."""
    opened = await world.open_scanner(DROPPED, StartFrom(id))
    assert not isinstance(opened, Refusal)
    opened.scanner.tell(CloseScanner())
    return opened.cursor


async def purged_tick(world: World) -> int:
    (channel,) = world.node.open_channels.all()
    return channel.purges.upto(DROPPED)


@pytest.mark.parametrize("how", ["at once", "after a restart", "on a node without the snapshot"])
def test_a_reader_that_had_not_read_all_is_told(how: str) -> None:
    async def scenario() -> None:
        catalog, wal = CatalogFake(), MemoryWal(segment_bytes=SEGMENT_BYTES)
        recovery = StoredRecovery(MemoryMetaStore())
        async with running_node(wal, LIMITS, catalog=catalog, recovery=recovery) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            late, done = Reader(world, DROPPED), Reader(world, DROPPED)
            for reader, count in ((late, 1), (done, OF_DROPPED)):
                await take(reader, count)
                await end_scanner(world, reader)
            catalog.drop(DROPPED, tick=(await world.offsets()).closed_tick)
            await world.clock.sleep(10)
            assert await size(world) < 0.3 * before
            if how == "at once":
                await check(world, late, done)
                return
        kept = recovery if how == "after a restart" else StoredRecovery(MemoryMetaStore())
        async with running_node(wal, LIMITS, catalog=catalog, recovery=kept) as world:
            await world.assign(term=5)
            await world.locate()
            await check(world, late, done)

    async def check(world: World, late: Reader, done: Reader) -> None:
        again = Reader(world, DROPPED)
        again.cursor = late.cursor
        answer = await last_answer(again, world)
        assert isinstance(answer, Refusal), "79 messages are missing"
        assert answer.code is StreamingCode.UNRECOVERABLE
        # One that had everything misses nothing, nor does one that takes what is left.
        again.cursor = done.cursor
        assert isinstance(await last_answer(again, world), Delivery)
        assert await read(world, DROPPED) == []
        assert len(await read(world, KEPT)) == 20
        assert await purged_tick(world) == done.messages[-1].tick

    run_seeded(1, scenario)


def test_a_drop_is_recorded_once_and_only_where_messages_go() -> None:
    async def scenario() -> None:
        catalog, wal = CatalogFake(), MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            (small,) = await land(world, "too small to be given back", shard=2)
            tick = (await world.offsets()).closed_tick
            catalog.drop(DROPPED, tick=tick)
            await world.clock.sleep(10)
            (channel,) = world.node.open_channels.all()
            (found,) = channel.purges.all()
            catalog.drop("a vchannel without messages", tick=tick)
            await fill(world, 5)
            await world.clock.sleep(10)
            assert channel.purges.all() == (found,)
            assert found.upto < small.tick
            assert found.newest == found.upto

    run_seeded(2, scenario)


def test_what_a_holder_still_needs_is_not_told_to_be_gone() -> None:
    """A transaction is given back whole, too: it lies across the place of the holder."""

    async def scenario() -> None:
        catalog, wal, held = CatalogFake(), MemoryWal(segment_bytes=SEGMENT_BYTES), HoldsOf()
        async with running_node(wal, LIMITS, catalog=catalog, holds=held) as world:
            await world.assign()
            begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            for _ in range(20):
                await world.append(message("y" * 4000, txn=begun.txn))
            first_id = (await world.offsets()).next_id
            await world.append(message(kind=MessageType.COMMIT_TXN, txn=begun.txn))
            await fill(world)
            catalog.drop(DROPPED, tick=(await world.offsets()).closed_tick)
            held.holds = [cursor(first_id)]
            await world.clock.sleep(10)
            reader = Reader(world, DROPPED)
            early = reader.cursor = await place(world, begun.id)
            assert isinstance(await last_answer(reader, world), Delivery), "nothing is gone"
            assert len(reader.messages) >= OF_DROPPED + 20
            await end_scanner(world, reader)
            held.holds = [cursor(first_id + 60)]
            await world.clock.sleep(10)
            half = int(statistics(world)["given_back_bytes"])
            assert half > 100_000
            behind = reader.cursor = await place(world, MessageId(first_id + 60))
            assert isinstance(await last_answer(reader, world), Delivery)
            await end_scanner(world, reader)
            reader.cursor = early
            assert isinstance(await last_answer(reader, world), Refusal)
            await end_scanner(world, reader)
            held.holds = []
            await world.clock.sleep(10)
            assert int(statistics(world)["given_back_bytes"]) > half
            reader.cursor = behind
            assert isinstance(await last_answer(reader, world), Refusal)

    run_seeded(3, scenario)


class NoRoom:
    """A disk that fails for the first three records of purges."""

    refused = 0

    def __call__(self, channel: PChannelName, records: Sequence[Record]) -> Fault | None:
        if any(it.kind == PURGE for it in records) and self.refused < 3:
            self.refused += 1
            return Fault.LOST
        return None


def test_while_a_drop_cannot_be_recorded_nothing_is_given_back_and_it_is_tried_again() -> None:
    async def scenario() -> None:
        catalog, fault = CatalogFake(), NoRoom()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES, fault_of=fault)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            before = await size(world)
            catalog.drop(DROPPED, tick=(await world.offsets()).closed_tick)
            while fault.refused < 3:
                assert await size(world) >= before
                await world.clock.sleep(0.5)
            await world.clock.sleep(20)
            assert int(statistics(world)["failures"]) > 0
            assert "error" not in statistics(world)
            assert await size(world) < 0.3 * before
            assert await purged_tick(world) > 0

    run_seeded(4, scenario)


def test_an_open_transaction_of_the_dropped_collection_stays_and_what_lies_before_it_goes() -> None:
    """A staged batch may be open for long; the end of the log may be the tick of the drop."""

    async def scenario() -> None:
        catalog, wal = CatalogFake(), MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            await fill(world)
            begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            await world.append(message("of the transaction", txn=begun.txn))
            catalog.drop(DROPPED)
            await world.clock.sleep(10)
            assert "error" not in statistics(world)
            assert int(statistics(world)["given_back_bytes"]) > 100_000
            assert await purged_tick(world) < begun.txn.id
            await world.append(message(kind=MessageType.COMMIT_TXN, txn=begun.txn))
            assert b"of the transaction" in await read(world, DROPPED)

    run_seeded(5, scenario)


class CountingLog(MemoryLog):
    actives = 0

    async def contents(self, segment: SealedSegment | None) -> Contents:
        CountingLog.actives += segment is None
        return await super().contents(segment)


class CountingWal(MemoryWal):
    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        log = await super().open(channel, term)
        log.__class__ = CountingLog
        return log


def test_the_active_segment_is_not_read_again_for_each_vchannel_that_was_dropped() -> None:
    async def scenario() -> None:
        CountingLog.actives = 0
        catalog, wal = CatalogFake(), CountingWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            for number in range(200):
                await world.append(message("z" * 4000, shard=number % 20))
            await world.clock.sleep(1)
            names = [f"{DROPPED.removesuffix('0')}{it}" for it in range(20)]
            catalog.drop(*names, tick=(await world.offsets()).closed_tick)
            await world.clock.sleep(10)
            (channel,) = world.node.open_channels.all()
            assert sorted(channel.purges.floors()) == sorted(names)
            assert CountingLog.actives < 10

    run_seeded(6, scenario)


def test_a_drop_names_its_newest_message_although_less_was_known_of_the_active_segment() -> None:
    async def scenario() -> None:
        catalog, wal = CatalogFake(), MemoryWal(segment_bytes=1 << 20)
        async with running_node(wal, LIMITS, catalog=catalog) as world:
            await world.assign()
            *_, neighbour = await land(world, *[BODY] * 10, shard=1)
            await land(world, "one")
            reader = Reader(world, DROPPED)
            await take(reader, 1)
            await end_scanner(world, reader)
            (channel,) = world.node.open_channels.all()
            channel.appender.tell(SealLog())
            await world.clock.sleep(1)
            # As after an earlier pass.
            await channel.contents.active(channel.log, 1)
            *_, last = await land(world, *[BODY] * 10)
            await land(world, "of others", shard=2)
            # The first one ends in the sealed segment, so that the active one is not read for it.
            catalog.drop(KEPT, tick=neighbour.tick)
            catalog.drop(DROPPED, tick=last.tick)
            await world.clock.sleep(60)
            assert await purged_tick(world) == last.tick
            answer = await reader.pull()
            assert isinstance(answer, Refusal), "ten messages are missing"
            assert answer.code is StreamingCode.UNRECOVERABLE

    run_seeded(9, scenario)
