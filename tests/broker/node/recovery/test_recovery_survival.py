"""Kills and a failing store at seeded moments: the recovered state equals that of the whole log."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.codec.stored_headers import StoredHeaders
from broker.core.log.log_recovery import RecoveryState
from broker.core.segments.segment_sealing import SegmentLimits
from broker.core.txn.txn_limits import TxnLimits
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.ids import Term, TxnId
from broker.model.message import AppendedInTxn
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.model.snapshot import (
    SegmentSnapshot,
    SegmentState,
    Snapshot,
    VChannelSnapshot,
    VChannelState,
)
from broker.model.txn import TxnContext
from broker.node.recovery.replay import effect_of
from broker.node.state.node_limits import NodeLimits
from broker.ports.wal import Log
from tests.broker.meta.flaky import Flaky
from tests.broker.node.rows_of_collections import (
    VCHANNEL,
    create_collection,
    drop_collection,
    insert,
    manual_flush,
)
from tests.broker.node.watched_wal import WatchedMemory
from tests.broker.node.world import PCHANNEL, World, message, running_node


def state_of(records: Sequence[Record], limits: NodeLimits) -> tuple[RecoveryState, list[str]]:
    """The whole log, read from its first record; and what in it cannot be."""
    state = RecoveryState(Snapshot(), effect_of(StoredHeaders()), limits.txns)
    return state, [text for record in records for text in state.observe(record)]


def living(snapshot: Snapshot) -> tuple[set[VChannelSnapshot], set[SegmentSnapshot]]:
    """What of it a writer would go on with."""
    return (
        {each for each in snapshot.vchannels if each.state is VChannelState.NORMAL},
        {each for each in snapshot.segments if each.state is SegmentState.GROWING},
    )


@pytest.mark.parametrize("seed", range(40))
def test_kills_and_a_failing_store_do_not_change_the_recovered_state(seed: int) -> None:
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
            segments=SegmentLimits(segment_bytes=400, seal_proportion=1.0),
            seal_check_s=0.3,
        )
        meta = Flaky(MemoryMetaStore(), lambda: _fault(rng))
        store = StoredRecovery(meta, keys_a_write_max=2)
        wal = WatchedMemory(segment_bytes=500)
        async with running_node(wal, limits, seed=seed, recovery=store) as world:
            await _assigned(world)
            async with asyncio.TaskGroup() as tasks:
                works = [tasks.create_task(_work(world, rng)) for _ in range(2)]
                works.append(tasks.create_task(_gather_rows(world, rng)))
                killer = tasks.create_task(_kill(world, rng))
                await asyncio.wait(works)
                killer.cancel()
            meta.fails = lambda: ""
            await _all_saved(world, wal)
        claim = await store.claim(PCHANNEL, Term(999))
        state, wrong = state_of(wal.records, limits)
        assert not [text for text in wrong if "segment" in text], (
            "they hold together over all kills"
        )
        whole = state.snapshot()
        assert whole.checkpoint is not None
        assert claim.snapshot.checkpoint == whole.checkpoint
        assert claim.snapshot.finished == whole.finished
        assert living(claim.snapshot) == living(whole)
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


async def _gather_rows(world: World, rng: random.Random) -> None:
    for _ in range(40):
        kind = rng.randrange(12)
        if kind == 0:
            await world.append(drop_collection())
        elif kind <= 2:
            await world.append(create_collection(version=rng.randrange(3)))
        elif kind == 3:
            await world.append(manual_flush())
        elif kind <= 5:
            (begun,) = await world.append(
                replace(message("b", kind=900, txn=TxnContext(TxnId(0), 0)), vchannel=VCHANNEL)
            )
            if isinstance(begun, AppendedInTxn):
                await world.append(insert(2, size_bytes=10, txn=begun.txn))
                await world.append(insert(3, size_bytes=10, txn=begun.txn))
                await world.append(message("end", kind=901, txn=begun.txn))
        else:
            await world.append(insert(rng.randint(1, 5), size_bytes=rng.randint(1, 15)))
        await world.clock.sleep(rng.random() * 0.1)


async def _kill(world: World, rng: random.Random) -> None:
    while True:
        await world.clock.sleep(rng.random() * 0.4)
        try:
            world.system.kill(world.path(rng.choice(("recovery", "recovery", "appender"))))
        except ActorError:
            continue
