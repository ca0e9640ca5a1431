"""Snapshots of a pchannel: saved in time, recovered, never overwritten by an older owner."""

import logging

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.core.master.segment_records import LOG_VCHANNELS, SEGMENTS, decode_segment_meta
from broker.core.txn.txn_limits import TxnLimits
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import Term, TxnId
from broker.model.message import AppendedInTxn
from broker.model.snapshot import (
    WalCheckpoint,
)
from broker.model.txn import TxnContext
from broker.node.state.node_limits import NodeLimits
from tests.broker.meta.flaky import Flaky
from tests.broker.node import rows_of_collections
from tests.broker.node.watched_wal import WatchedMemory
from tests.broker.node.world import PCHANNEL, World, appended, message, running_node

LIMITS = NodeLimits(txns=TxnLimits(keepalive_default_ms=3_000), txn_finish_s=0.1)


async def saved(meta: MemoryMetaStore | Flaky) -> WalCheckpoint | None:
    """The checkpoint that a restart would find; nobody's claim is touched."""
    copy = MemoryMetaStore()
    await copy.write({key: entry.value for key, entry in await meta.list("recovery/", limit=1000)})
    return (await StoredRecovery(copy).claim(PCHANNEL, Term(99))).snapshot.checkpoint


async def begin(world: World, shard: int = 0) -> TxnContext:
    (outcome,) = await world.append(message("b", shard, 900, txn=TxnContext(TxnId(0), 0)))
    assert isinstance(outcome, AppendedInTxn), outcome
    return outcome.txn


async def reopen(world: World, term: int) -> None:
    assert await world.remove(term=term - 1) is None
    assert await world.assign(term=term) is None


def test_it_is_saved_after_ten_seconds_or_a_hundred_records_and_then_read_from_there() -> None:
    async def scenario() -> None:
        wal, meta = WatchedMemory(), MemoryMetaStore()
        async with running_node(wal, LIMITS, recovery=StoredRecovery(meta)) as world:
            await world.assign()
            await world.append(message("x"))
            await world.clock.sleep(5)
            assert await saved(meta) is None
            await world.clock.sleep(6)
            first = await saved(meta)
            assert first is not None
            assert first.id == (await world.offsets()).next_id - 1
            assert (await world.offsets()).checkpoint == first
            for _ in range(100):
                await world.append(message("y"))
            await world.clock.sleep(1.5)
            second = await saved(meta)
            assert second is not None
            assert second.id > first.id + 99
            world.system.kill(world.path("appender"))
            wal.reads.clear()
            assert (await world.locate(term=2)).channel.term == 2
            assert min(wal.reads) >= second.id

    run_seeded(1, scenario)


def test_a_new_segment_is_saved_at_the_next_look_and_its_rows_after_the_period() -> None:
    async def segment_rows(meta: MemoryMetaStore) -> list[int]:
        found = await meta.list(SEGMENTS, limit=10)
        return [decode_segment_meta(entry.value).rows for _, entry in found]

    async def scenario() -> None:
        meta = MemoryMetaStore()
        async with running_node(WatchedMemory(), LIMITS, recovery=StoredRecovery(meta)) as world:
            await world.assign()
            await world.append(rows_of_collections.create_collection())
            await world.append(rows_of_collections.insert(rows=3))
            await world.clock.sleep(2.5)
            assert await segment_rows(meta) == [3]
            assert await meta.get(LOG_VCHANNELS + rows_of_collections.VCHANNEL) is not None
            await world.append(rows_of_collections.insert(rows=4))
            await world.clock.sleep(2.5)
            assert await segment_rows(meta) == [3]
            await world.clock.sleep(10)
            assert await segment_rows(meta) == [7]

    run_seeded(1, scenario)


def test_a_commit_repeated_after_restarts_gets_its_first_answer_from_the_snapshot() -> None:
    async def scenario() -> None:
        wal = WatchedMemory()
        async with running_node(wal, LIMITS) as world:
            await world.assign()
            txn = await begin(world)
            await world.append(message("1", txn=txn))
            commit = message("c", kind=901, txn=txn)
            (first,) = appended(await world.append(commit))
            await reopen(world, 2)
            await world.clock.sleep(2)
            await world.remove(term=2)
            wal.reads.clear()
            await world.assign(term=3)
            assert min(wal.reads) > first.id
            assert await world.append(commit) == (first,)
            (other,) = await world.append(message("r", kind=902, txn=txn))
            assert isinstance(other, Refusal)
            assert other.code is StreamingCode.INVALID_TRANSACTION_STATE
            await world.clock.sleep(61)
            await begin(world)  # time is read from ends
            await world.append(message("c", kind=901, txn=await begin(world)))
            await reopen(world, 4)
            (gone,) = await world.append(commit)
            assert isinstance(gone, Refusal)
            assert gone.code is StreamingCode.TRANSACTION_EXPIRED

    run_seeded(2, scenario)


def test_an_orderly_close_saves_the_end_and_a_killed_recovery_is_restarted() -> None:
    async def scenario() -> None:
        meta = MemoryMetaStore()
        async with running_node(WatchedMemory(), LIMITS, recovery=StoredRecovery(meta)) as world:
            await world.assign()
            await world.append(message("x"))
            await world.clock.sleep(1)
            world.system.kill(world.path("recovery"))
            await world.append(message("y"))
            await world.clock.sleep(12)
            assert world.system.find(world.path("recovery")).term == 2
            assert (await world.locate()).channel.term == 1, "nobody else was disturbed"
            assert (await world.offsets()).checkpoint == await saved(meta)
            (last,) = appended(await world.append(message("z")))
            assert await world.remove() is None
            found = await saved(meta)
            assert found is not None
            assert found.id >= last.id

    run_seeded(3, scenario)


def test_an_unavailable_store_is_retried_and_never_stops_appends_or_the_close() -> None:
    async def scenario() -> None:
        meta = Flaky(MemoryMetaStore())
        async with running_node(WatchedMemory(), LIMITS, recovery=StoredRecovery(meta)) as world:
            await world.assign()
            await world.clock.sleep(0.1)
            meta.writes_left = 0
            await world.append(message("x"))
            await world.clock.sleep(30)
            found = {each.path: each.extra for each in world.system.statistics()}
            assert int(found[world.path("recovery")]["save_failures"]) > 10
            (last,) = appended(await world.append(message("y")))
            assert (await world.offsets()).checkpoint is None
            meta.writes_left = None
            await world.clock.sleep(15)
            checkpoint = (await world.offsets()).checkpoint
            assert checkpoint is not None
            assert checkpoint.id >= last.id
            meta.writes_left = 0
            await world.append(message("z"))
            assert await world.remove() is None
            assert await saved(meta) == checkpoint

    run_seeded(4, scenario)


def test_a_channel_does_not_open_while_the_store_is_unavailable() -> None:
    async def scenario() -> None:
        meta = Flaky(MemoryMetaStore())
        meta.writes_left = 0
        async with running_node(WatchedMemory(), LIMITS, recovery=StoredRecovery(meta)) as world:
            refusal = await world.assign()
            assert isinstance(refusal, Refusal)
            assert "cannot read the snapshot" in refusal.cause
            meta.writes_left = None
            assert (await world.locate()).channel.term > 1

    run_seeded(5, scenario)


def test_a_newer_owner_ends_this_one_and_its_snapshot_stays() -> None:
    async def scenario() -> None:
        meta = MemoryMetaStore()
        async with running_node(WatchedMemory(), LIMITS, recovery=StoredRecovery(meta)) as world:
            await world.assign()
            await world.append(message("x"))
            await world.clock.sleep(11)
            newer = await StoredRecovery(meta).claim(PCHANNEL, Term(9))
            before = await meta.list("recovery/", limit=1000)
            await world.append(message("y"))
            await world.clock.sleep(30)
            assert await meta.list("recovery/", limit=1000) == before
            with pytest.raises(ActorError):
                world.system.find(world.path("recovery"))
            assert newer.snapshot.checkpoint == (await world.offsets()).checkpoint
            world.system.kill(world.path("appender"))
            await world.clock.sleep(1)
            assert isinstance(await world.remove(term=99), Refusal | None)

    run_seeded(6, scenario)


@pytest.mark.parametrize("part", ["checkpoint", "finished"])
def test_a_damaged_snapshot_is_logged_and_the_log_is_replayed_instead(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        wal, meta = WatchedMemory(), MemoryMetaStore()
        async with running_node(wal, LIMITS, recovery=StoredRecovery(meta)) as world:
            await world.assign()
            done = await begin(world)
            commit = message("c", kind=901, txn=done)
            (first,) = appended(await world.append(commit))
            still_open = await begin(world)
            await world.remove()
            await meta.write({f"recovery/{PCHANNEL}/{part}": b'{"version":7}'})
            wal.reads.clear()
            with caplog.at_level(logging.ERROR):
                assert await world.assign(term=2) is None
            assert "version 7" in caplog.text
            assert min(wal.reads) == 1
            assert await world.append(commit) == (first,)
            appended(await world.append(message("1", txn=still_open)))
            await reopen(world, 3)
            assert min(wal.reads[-2:]) > 1, "it was saved at once"

    run_seeded(7, scenario)


def test_a_snapshot_of_another_log_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        store = StoredRecovery(MemoryMetaStore())
        async with running_node(WatchedMemory(), LIMITS, recovery=store) as world:
            await world.assign()
            for _ in range(5):
                await world.append(message("x"), message("y"))
        wal = WatchedMemory()
        async with running_node(wal, LIMITS, recovery=store) as world:
            await world.assign(term=2)
            (landed,) = appended(await world.append(message("x")))
            assert landed.id < 5
            await reopen(world, 3)
        assert caplog.text.count("belongs to another log") == 1

    run_seeded(8, scenario)


@pytest.mark.parametrize("damaged", [1, 5, 12])
def test_damage_inside_an_open_transaction_ends_it_and_does_not_keep_a_log_closed(
    damaged: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`damaged`: so many records of its bodies, from its second one on."""

    async def scenario() -> None:
        wal = WatchedMemory()
        async with running_node(wal, LIMITS) as world:
            await world.assign()
            hurt, ended = await begin(world), await begin(world)
            lost: set[int] = set()
            for number in range(14):
                pair = [message(f"{number}/{at}", txn=hurt) for at in range(2)]
                landed = appended(await world.append(*pair))
                if 1 <= number <= damaged:
                    lost |= {it.id for it in landed}
            (whole,) = appended(await world.append(message("e", 0, 901, txn=ended)))
            later = await begin(world, 1)
            await world.remove()
        wal.damaged = lost
        async with running_node(wal, LIMITS) as world:  # of a node without its snapshots
            assert await world.assign(term=2) is None
            (refusal,) = await world.append(message("x", txn=hurt))
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.TRANSACTION_EXPIRED
            (again,) = appended(await world.append(message("e", 0, 901, txn=ended)))
            assert again == whole
            appended(await world.append(message("1", 1, txn=later)))
            appended(await world.append(message("e", 1, 901, txn=later)))
            assert (await world.offsets()).open_txns == 0
        assert [it.txn.id for it in wal.records if it.kind == 902 and it.txn] == [hurt.id]
        assert "skipping damaged records" in caplog.text

    run_seeded(10, scenario)


def test_a_log_whose_newest_records_are_damaged_opens() -> None:
    async def scenario() -> None:
        wal = WatchedMemory()
        async with running_node(wal, LIMITS) as world:
            await world.assign()
            txn = await begin(world)
            landed = appended(await world.append(message("1", txn=txn)))
            await world.remove()
        wal.damaged = set(range(landed[0].id, wal.records[-1].next_id))
        async with running_node(wal, LIMITS) as world:
            assert await world.assign(term=2) is None
            (refusal,) = await world.append(message("2", txn=txn))
            assert isinstance(refusal, Refusal)
            appended(await world.append(message("plain")))

    run_seeded(11, scenario)


def test_a_snapshot_of_another_log_is_replaced_before_this_one_grows() -> None:
    async def scenario() -> None:
        meta = Flaky(MemoryMetaStore())
        store = StoredRecovery(meta)
        async with running_node(WatchedMemory(), LIMITS, recovery=store) as world:
            await world.assign()
            await world.append(message("x"), message("y"))
            await world.remove()  # a close in good order stores the snapshot
            assert await saved(meta) is not None
        wal = WatchedMemory()
        meta.writes_left = 1
        async with running_node(wal, LIMITS, recovery=store) as world:
            refusal = await world.assign(term=2)
            assert isinstance(refusal, Refusal)
            assert "cannot replace the snapshot of another log" in refusal.cause
            assert not wal.records
            meta.writes_left = None
            assert (await world.locate()).channel.term > 2
            appended(await world.append(message("z")))

    run_seeded(8, scenario)


def test_damage_in_what_need_not_be_read_does_not_keep_a_log_closed() -> None:
    async def scenario() -> None:
        wal = WatchedMemory()
        async with running_node(wal, LIMITS) as world:
            await world.assign()
            await world.append(message("x"))
            txn = await begin(world)
            await world.remove()
        wal.damaged = {1}
        async with running_node(wal, LIMITS) as world:  # of a node without its snapshots
            assert await world.assign(term=2) is None
            appended(await world.append(message("1", txn=txn)))
            await world.clock.sleep(11)
            assert (await world.offsets()).checkpoint is not None

    run_seeded(9, scenario)
