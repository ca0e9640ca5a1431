"""Purges of a vchannel: durable, typed, refused while somebody needs what would go."""

from dataclasses import replace

import pytest

from actors.testing import run_seeded
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot
from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.message import Appended, AppendedInTxn, MessageType
from broker.model.position import DeliverPolicy, FromAll, StartFrom, TimeTickGt
from broker.model.retention.policy import Retention
from broker.model.retention.purge import Purge
from broker.model.txn import TxnContext
from broker.node.scanner_messages import Pull
from broker.node.space.purging import PurgeVChannel
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.space.test_held_space import LIMITS, HoldsOf, cursor, last_answer
from tests.broker.node.space.test_reclamation import (
    BODY,
    DROPPED,
    KEPT,
    SEGMENT_BYTES,
    CatalogFake,
    fill,
    size,
)
from tests.broker.node.test_truncation import HoldsFake
from tests.broker.node.world import PCHANNEL, Reader, World, message, running_node

MINE, OTHERS = DROPPED, KEPT


async def purge(
    world: World, upto: int = 0, before_id: int = 0, *, only_check: bool = False
) -> Purge | Refusal:
    request = PurgeVChannel(MINE, TimeTick(upto), MessageId(before_id), only_check)
    answer: Purge | Refusal = await world.system.find("/root/node/purging").ask(
        request, deadline_s=60.0
    )
    return answer


async def land(world: World, *texts: str, shard: int = 0) -> list[Appended]:
    found = []
    for text in texts:
        (landed,) = await world.append(message(text, shard=shard))
        assert isinstance(landed, Appended)
        found.append(landed)
    await world.clock.sleep(0.5)
    return found


async def read(world: World, vchannel: str, policy: DeliverPolicy | None = None) -> list[bytes]:
    """What a new consumer gets, to the end; none is left open, so that nothing is held."""
    opened = await world.open_scanner(vchannel, policy or FromAll())
    assert not isinstance(opened, Refusal), opened
    reader = Reader(world, vchannel)
    reader._opened, reader.cursor = opened, opened.cursor
    await reader.read_until((await world.offsets()).next_id - 1)
    (channel,) = world.node.open_channels.all()
    channel.readers.clear()
    return [it.body for it in reader.messages]


def test_a_purge_hides_what_lies_below_at_once_and_gives_its_space_back() -> None:
    async def scenario() -> None:
        wal, recovery = MemoryWal(segment_bytes=SEGMENT_BYTES), StoredRecovery(MemoryMetaStore())
        async with running_node(wal, LIMITS, recovery=recovery) as world:
            await world.assign()
            await fill(world)
            (landed,) = await land(world, "the last below")
            await land(world, "the first above")
            before = await size(world)
            done = await purge(world, landed.tick)
            assert isinstance(done, Purge), done
            assert done.next_id == landed.id + 1
            assert await read(world, MINE) == [b"the first above"]
            assert len(await read(world, OTHERS)) == 20
            assert len(await read(world, "")) == 21
            await world.clock.sleep(10)
            assert await size(world) < 0.3 * before
            assert await read(world, MINE) == [b"the first above"]
            assert len(await read(world, OTHERS)) == 20
        for term, saved in ((5, recovery), (9, StoredRecovery(MemoryMetaStore()))):
            # From the snapshot, and from the log alone.
            async with running_node(wal, LIMITS, recovery=saved) as world:
                await world.assign(term=term)
                await world.locate()
                assert await read(world, MINE) == [b"the first above"]
                assert await purge(world, landed.tick) == done, "it is known"

    run_seeded(1, scenario)


def test_what_was_purged_stays_hidden_when_its_collection_is_dropped() -> None:
    async def scenario() -> None:
        wal, recovery = MemoryWal(segment_bytes=SEGMENT_BYTES), StoredRecovery(MemoryMetaStore())
        async with running_node(wal, LIMITS, recovery=recovery) as world:
            await world.assign()
            (landed,) = await land(world, "secret")
            assert isinstance(await purge(world, landed.tick), Purge)
            await world.append(message("dropped", kind=MessageType.DROP_COLLECTION))
            await world.clock.sleep(30)
        async with running_node(wal, LIMITS, recovery=recovery) as world:
            await world.assign(term=5)
            await world.locate()
            assert await read(world, "") == [b"dropped"]

    run_seeded(11, scenario)


def test_retention_forgets_a_purge_with_what_it_hides() -> None:
    async def scenario() -> None:
        wal, recovery = MemoryWal(segment_bytes=SEGMENT_BYTES), StoredRecovery(MemoryMetaStore())
        limits = replace(LIMITS, retention=Retention(bytes_max=SEGMENT_BYTES))
        async with running_node(wal, limits, recovery=recovery) as world:
            await world.assign()
            (landed,) = await land(world, "gone")
            done = await purge(world, landed.tick)
            assert isinstance(done, Purge)
            await fill(world)
            await world.clock.sleep(60)
            assert (await world.offsets()).first_id >= done.next_id
            (channel,) = world.node.open_channels.all()
            assert channel.purges.all() == ()
            await land(world, "one more record for the next snapshot")
            await world.clock.sleep(60)
        claim = await recovery.claim(PCHANNEL, Term(9))
        assert claim.snapshot is not None
        assert claim.snapshot.purges == ()

    run_seeded(12, scenario)


def test_a_position_below_a_purge_is_refused_as_removed_and_one_behind_it_is_not() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            first, second, third = await land(world, "one", "two", "three")
            done = await purge(world, second.tick)
            assert isinstance(done, Purge)
            for at in (1, first.id, second.id):
                opened = await world.open_scanner(MINE, StartFrom(MessageId(at)))
                assert not isinstance(opened, Refusal)
                answer = await opened.scanner.ask(Pull(opened.cursor, 1 << 20), deadline_s=10.0)
                assert isinstance(answer, Refusal) == (at > 1), answer
                if isinstance(answer, Refusal):
                    assert answer.code is StreamingCode.UNRECOVERABLE
                    assert f"up to tick {second.tick} are gone" in answer.cause
                    assert f"read from id {done.next_id} on" in answer.cause
            assert await read(world, MINE, StartFrom(third.id)) == [b"three"]
            assert await read(world, MINE, StartFrom(done.next_id)) == [b"three"]
            behind = Reader(world, MINE, (TimeTickGt(second.tick),))
            await behind.read_until((await world.offsets()).next_id - 1)
            assert [it.body for it in behind.messages] == [b"three"]
            everything = Reader(world)
            await everything.read_until((await world.offsets()).next_id - 1)
            assert [it.body for it in everything.messages] == [b"three"]

    run_seeded(2, scenario)


def test_a_purge_up_to_an_id_takes_what_has_smaller_ids() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            landed = await land(world, "one", "two", "three", "four")
            assert isinstance(await purge(world, before_id=1), Purge), "nothing lies below it"
            (channel,) = world.node.open_channels.all()
            assert channel.purges.all() == (), "so there is nothing to remember"
            assert isinstance(await purge(world, before_id=landed[2].id), Purge)
            assert await read(world, MINE) == [b"three", b"four"]
            end = (await world.offsets()).next_id
            assert isinstance(await purge(world, before_id=end), Purge)
            assert await read(world, MINE) == []
            refusal = await purge(world, before_id=end + 5)
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.INVALID_ARGUMENT
            assert "is not written yet" in refusal.cause

    run_seeded(3, scenario)


def test_a_tick_that_is_not_closed_and_a_channel_that_is_not_here_are_refused() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(), LIMITS) as world:
            refusal = await purge(world, 5)
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.CHANNEL_NOT_EXIST
            await world.assign()
            await land(world, "one")
            refusal = await purge(world, 1 << 62)
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.INVALID_ARGUMENT
            assert "is not closed yet" in refusal.cause
            path = world.system.find("/root/node/purging")
            refusal = await path.ask(PurgeVChannel(PCHANNEL, TimeTick(1)), deadline_s=5.0)
            assert isinstance(refusal, Refusal)
            assert "is a pchannel" in refusal.cause
            unknown = PurgeVChannel(f"{PCHANNEL}_99v0", TimeTick(1))
            assert isinstance(await path.ask(unknown, deadline_s=5.0), Purge)
            (channel,) = world.node.open_channels.all()
            assert channel.purges.all() == (), "there is nothing to remember"
            assert await read(world, MINE) == [b"one"]

    run_seeded(4, scenario)


def test_an_open_transaction_refuses_the_purge_of_what_it_may_deliver() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            (before,) = await land(world, "before")
            begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            await world.append(message("inside", txn=begun.txn))
            (after,) = await land(world, "after")
            refusal = await purge(world, after.tick)
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.RESOURCE_ACQUIRED
            assert f"transaction {begun.txn.id} is open" in refusal.cause
            assert isinstance(await purge(world, before.tick), Purge)
            await world.append(message(kind=MessageType.COMMIT_TXN, txn=begun.txn))
            await world.clock.sleep(0.5)
            assert isinstance(await purge(world, after.tick), Purge)
            assert b"inside" in await read(world, MINE), "it is of the tick of its commit"

    run_seeded(5, scenario)


@pytest.mark.parametrize("kind", ["cursor", "group", "reader"])
def test_whoever_needs_a_message_refuses_the_purge_and_whoever_has_it_does_not(kind: str) -> None:
    async def scenario() -> None:
        held = HoldsOf()
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS, holds=held) as world:
            await world.assign()
            landed = await land(world, "one", "two", "three")
            (channel,) = world.node.open_channels.all()
            reader = Reader(world, MINE)

            async def needs_from(number: int) -> None:
                """Has everything before this message."""
                tick = TimeTick(landed[number].tick - 1)
                if kind == "cursor":
                    held.holds = [cursor(0, OTHERS), cursor(0, MINE)]
                    held.holds = [
                        type(it)(it.kind, it.name, tick, MessageId(0), None, None, it.vchannels)
                        for it in held.holds
                    ]
                elif kind == "group":
                    key = GroupKey(MINE, "slow")
                    saved = GroupSnapshot(key, 30_000, tick, (), tick, tick)
                    table = type(channel.groups.table)([saved])
                    channel.groups.table.groups = table.groups
                else:
                    while len(reader.messages) < number:
                        await reader.pull(1)

            await needs_from(1)
            refusal = await purge(world, landed[1].tick)
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.RESOURCE_ACQUIRED
            assert f"{kind} '" in refusal.cause
            assert isinstance(await purge(world, landed[0].tick), Purge)
            await needs_from(2)
            checked = await purge(world, landed[1].tick, only_check=True)
            assert isinstance(checked, Purge)
            assert channel.purges.upto(MINE) == landed[0].tick, "nothing was done"
            assert isinstance(await purge(world, landed[1].tick), Purge)
            if kind == "reader":
                await reader.read_until((await world.offsets()).next_id - 1)
                assert [it.body for it in reader.messages] == [b"one", b"two", b"three"]

    run_seeded(6, scenario)


def test_a_group_that_has_everything_refuses_no_purge_behind_its_newest_message() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            *_, mine = await land(world, "one", "two")
            (channel,) = world.node.open_channels.all()
            saved = GroupSnapshot(GroupKey(MINE, "done"), 1, mine.tick, (), mine.tick, mine.tick)
            channel.groups.table.groups = type(channel.groups.table)([saved]).groups
            *_, other = await land(world, "of another vchannel", shard=1)
            assert isinstance(await purge(world, other.tick), Purge)

    run_seeded(7, scenario)


def test_a_live_reader_that_a_limit_passes_learns_that_messages_are_gone() -> None:
    async def scenario() -> None:
        limits = replace(LIMITS, hold_bytes_max=0)
        wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, limits) as world:
            await world.assign()
            landed = await land(world, "one", "two", "three")
            reader = Reader(world, MINE)
            while not reader.messages:
                await reader.pull(1)
            assert isinstance(await purge(world, landed[1].tick), Purge)
            answer = await last_answer(reader)
            assert isinstance(answer, Refusal)
            assert answer.code is StreamingCode.UNRECOVERABLE

    run_seeded(8, scenario)


def test_a_purge_does_not_wait_for_a_snapshot() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            (landed,) = await land(world, "one")
            (channel,) = world.node.open_channels.all()
            channel.snapshot.checkpoint = None
            assert isinstance(await purge(world, landed.tick), Purge)

    run_seeded(10, scenario)


def test_while_the_holders_are_not_known_nothing_is_purged() -> None:
    async def scenario() -> None:
        held = HoldsFake()
        held.away = "the coordinator is away"
        async with running_node(MemoryWal(), LIMITS, holds=held, catalog=CatalogFake()) as world:
            await world.assign()
            (landed,) = await land(world, BODY)
            refusal = await purge(world, landed.tick)
            assert isinstance(refusal, Refusal)
            assert "the coordinator is away" in refusal.cause
            assert await read(world, MINE) == [BODY.encode()]

    run_seeded(9, scenario)
