"""What a pchannel remembers over a restart: saved in time, found again, never written over."""

import asyncio
import logging
import random
from collections.abc import Sequence

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.core.recovery import RecoveryState
from broker.core.transaction import TxnLimits
from broker.edge.stored_headers import StoredHeaders
from broker.meta.memory import MemoryMetaStore
from broker.meta.recovery import StoredRecovery
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term, TxnId
from broker.model.message import AppendedInTxn
from broker.model.record import Record
from broker.model.snapshot import Snapshot, WalCheckpoint
from broker.model.txn import TxnContext
from broker.node.limits import NodeLimits
from broker.node.replay import effect_of
from broker.ports.wal import Corrupt, Log, Retention
from broker.wal.memory import MemoryLog, MemoryWal
from tests.broker.meta.flaky import Flaky
from tests.broker.node.world import PCHANNEL, World, appended, message, running_node

LIMITS = NodeLimits(txns=TxnLimits(keepalive_default_ms=3_000), txn_finish_s=0.1)


class WatchedLog(MemoryLog):
    """Remembers what was read and written, and reports damage where it is told to."""

    wal: "WatchedMemory"

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        self.wal.reads.append(from_id)
        if from_id in self.wal.damaged:
            raise Corrupt("seg", from_id, "checksum")
        return await super().read(from_id, bytes_max)

    async def append(self, records: Sequence[Record]) -> None:
        await super().append(records)
        self.wal.records += records


class WatchedMemory(MemoryWal):
    """Logs in memory that are watched; `records` is all that was ever stored."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self.reads: list[MessageId] = []
        self.records: list[Record] = []
        self.damaged: set[int] = set()

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        log = await super().open(channel, term)
        log.__class__ = WatchedLog
        assert isinstance(log, WatchedLog)
        log.wal = self
        return log


def state_of(records: Sequence[Record], limits: NodeLimits = LIMITS) -> RecoveryState:
    """The whole log, read from its first record."""
    state = RecoveryState(Snapshot(), effect_of(StoredHeaders()), limits.txns)
    for record in records:
        state.observe(record)
    return state


async def saved(meta: MemoryMetaStore | Flaky) -> WalCheckpoint | None:
    """The checkpoint that a restart would find; nobody's claim is touched."""
    copy = MemoryMetaStore()
    await copy.write({key: entry.value for key, entry in await meta.list("recovery/")})
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
            await begin(world)  # time is told by ends
            await world.append(message("c", kind=901, txn=await begin(world)))
            await reopen(world, 4)
            (gone,) = await world.append(commit)
            assert isinstance(gone, Refusal)
            assert gone.code is StreamingCode.TRANSACTION_EXPIRED

    run_seeded(2, scenario)


def test_an_orderly_close_saves_the_end_and_a_killed_recovery_comes_back_by_itself() -> None:
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


def test_a_store_that_is_away_is_tried_again_and_never_stops_appends_or_the_close() -> None:
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


def test_a_channel_does_not_open_before_the_store_says_what_is_remembered() -> None:
    async def scenario() -> None:
        meta = Flaky(MemoryMetaStore())
        meta.writes_left = 0
        async with running_node(WatchedMemory(), LIMITS, recovery=StoredRecovery(meta)) as world:
            refusal = await world.assign()
            assert isinstance(refusal, Refusal)
            assert "cannot be read now" in refusal.cause
            meta.writes_left = None
            assert (await world.locate()).channel.term > 1

    run_seeded(5, scenario)


def test_somebody_newer_turns_this_one_away_and_what_it_saved_stays() -> None:
    async def scenario() -> None:
        meta = MemoryMetaStore()
        async with running_node(WatchedMemory(), LIMITS, recovery=StoredRecovery(meta)) as world:
            await world.assign()
            await world.append(message("x"))
            await world.clock.sleep(11)
            newer = await StoredRecovery(meta).claim(PCHANNEL, Term(9))
            before = await meta.list("recovery/")
            await world.append(message("y"))
            await world.clock.sleep(30)
            assert await meta.list("recovery/") == before
            with pytest.raises(ActorError):
                world.system.find(world.path("recovery"))
            assert newer.snapshot.checkpoint == (await world.offsets()).checkpoint
            world.system.kill(world.path("appender"))
            await world.clock.sleep(1)
            assert isinstance(await world.remove(term=99), Refusal | None)

    run_seeded(6, scenario)


@pytest.mark.parametrize("part", ["checkpoint", "finished"])
def test_a_damaged_snapshot_is_told_loudly_and_the_log_is_read_instead(
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
        assert caplog.text.count("of another log") == 1

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


@pytest.mark.parametrize("seed", range(40))
def test_kills_and_a_failing_store_change_nothing_of_what_is_known(seed: int) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)
        limits = NodeLimits(
            txns=TxnLimits(keepalive_default_ms=500, finished_max=4),
            txn_finish_s=0.1,
            snapshot_period_s=0.5,
            snapshot_look_s=0.05,
            snapshot_records=rng.choice((1, 5, 100)),
            retention=Retention(bytes_max=1_500),
            retention_period_s=0.3,
            tail_bytes_max=1_000,
        )
        meta = Flaky(MemoryMetaStore(), lambda: _fault(rng))
        store = StoredRecovery(meta, keys_a_write_max=2)
        wal = WatchedMemory(segment_bytes=500)
        async with running_node(wal, limits, seed=seed, recovery=store) as world:
            await _assigned(world)
            async with asyncio.TaskGroup() as tasks:
                works = [tasks.create_task(_work(world, rng)) for _ in range(3)]
                killer = tasks.create_task(_kill(world, rng))
                await asyncio.wait(works)
                killer.cancel()
            meta.fails = lambda: ""
            await _all_saved(world, wal)
        claim = await store.claim(PCHANNEL, Term(999))
        whole = state_of(wal.records, limits).snapshot()
        assert whole.checkpoint is not None
        assert claim.snapshot.checkpoint == whole.checkpoint
        assert claim.snapshot.finished == whole.finished
        reopened: Log = await wal.open(PCHANNEL, Term(999))
        assert reopened.bounds().first_id <= whole.checkpoint.id

    run_seeded(seed, scenario)


def _fault(rng: random.Random) -> str:
    return rng.choice(("before", "after")) if rng.random() < 0.2 else ""


async def _assigned(world: World) -> None:
    """The store may refuse the first time; then the channel tries again by itself."""
    await world.assign()
    await world.locate()


async def _all_saved(world: World, wal: WatchedMemory) -> None:
    """Until a restart would have nothing to read but the newest record."""
    while True:
        checkpoint = (await world.offsets()).checkpoint
        if checkpoint is not None and checkpoint.tick == wal.records[-1].last_tick:
            return
        await world.clock.sleep(0.1)


async def _work(world: World, rng: random.Random) -> None:
    for _ in range(15):
        shard = rng.randrange(2)
        await world.append(message("plain", shard))
        (begun,) = await world.append(message("b", shard, 900, txn=TxnContext(TxnId(0), 0)))
        if isinstance(begun, AppendedInTxn):
            await world.append(message("body", shard, txn=begun.txn))
            await world.clock.sleep(rng.random() * 0.2)
            if rng.random() < 0.9:
                kind = rng.choice((901, 902))
                await world.append(message("end", shard, kind, txn=begun.txn))


async def _kill(world: World, rng: random.Random) -> None:
    while True:
        await world.clock.sleep(rng.random() * 0.4)
        try:
            world.system.kill(world.path(rng.choice(("recovery", "recovery", "appender"))))
        except ActorError:
            continue
