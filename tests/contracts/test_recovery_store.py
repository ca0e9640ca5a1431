"""What a recovery store promises, over each metadata driver: `broker/ports/recovery_store.py`."""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from broker.core.master.segment_records import (
    CHANGED_VCHANNELS,
    LOG_VCHANNELS,
    decode_segment_meta,
    flush_key,
    logged_segment,
    member_key,
    segment_key,
)
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.sqlite import SqliteMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.effect import SegmentLevel
from broker.model.groups.consumer_group import (
    DeliveryLimit,
    DyingSpans,
    GroupKey,
    GroupSnapshot,
    TickSpan,
    TriedSpans,
)
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import (
    CollectionId,
    MessageId,
    PartitionId,
    PChannelName,
    SegmentId,
    Term,
    TimeTick,
    TxnId,
    VChannelName,
)
from broker.model.master.segment_meta import SegmentMetaState
from broker.model.message import AppendedInTxn
from broker.model.producer_numbers import ProducedBatch
from broker.model.retention.holders import HolderKind, PassCause, Passed
from broker.model.retention.purge import Purge
from broker.model.snapshot import (
    FinishedTxn,
    SchemaStart,
    SegmentSnapshot,
    SegmentState,
    Snapshot,
    SnapshotChange,
    TxnEnd,
    VChannelSnapshot,
    VChannelState,
    WalCheckpoint,
)
from broker.model.txn import TxnContext
from broker.ports.meta import MetaError, MetaStore
from broker.ports.recovery_store import Superseded
from tests.broker.meta.flaky import Flaky

P = PChannelName("by-dev-rootcoord-dml_1")
HEAD = f"recovery/{P}/checkpoint"
VCHANNEL = VChannelSnapshot(
    name=VChannelName(f"{P}_7v0"),
    collection_id=CollectionId(7),
    state=VChannelState.NORMAL,
    partition_ids=(PartitionId(1), PartitionId(2)),
    schemas=(SchemaStart(1, b"\x00\xff", TimeTick(5)), SchemaStart(2, b"", TimeTick(8))),
    created_tick=TimeTick(5),
    tick=TimeTick(8),
)
SEGMENT = SegmentSnapshot(
    id=SegmentId(6),
    vchannel=VCHANNEL.name,
    collection_id=CollectionId(7),
    partition_id=PartitionId(1),
    state=SegmentState.GROWING,
    level=SegmentLevel.ROWS,
    schema_version=1,
    rows=3,
    size_bytes=30,
    rows_max=0,
    size_bytes_max=1 << 40,
    created_tick=TimeTick(6),
    modified_tick=TimeTick(9),
    tick=TimeTick(9),
)
FINISHED = FinishedTxn(
    VCHANNEL.name,
    MessageId(3),
    2,
    TxnEnd.COMMITTED,
    AppendedInTxn(MessageId(7), TimeTick(9), MessageId(3), TxnContext(TxnId(6), 500)),
)
PRODUCED = ProducedBatch("p", 4, 2, MessageId(8), TimeTick(10), MessageId(8))
GROUP = GroupSnapshot(
    key=GroupKey(VCHANNEL.name, "workers"),
    lease_ms=30_000,
    floor=TimeTick(4),
    acked=(TickSpan(TimeTick(6), TimeTick(7)), TickSpan(TimeTick(9), TimeTick(1 << 60))),
    created_tick=TimeTick(3),
    tick=TimeTick(10),
)
OTHER_GROUP = replace(
    GROUP,
    key=GroupKey(VCHANNEL.name, "others"),
    acked=(),
    limit=DeliveryLimit(3, VCHANNEL.name, "trains"),
    tried=(TriedSpans(2, (TickSpan(TimeTick(4), TimeTick(5)),)),),
    dying=(DyingSpans((TickSpan(TimeTick(6), TimeTick(8)),), "bad seat", 3, TimeTick(9)),),
    mode=GroupMode.BY_KEY,
)
PASSED = Passed(HolderKind.GROUP, "late", PassCause.BYTES, 70, 60, TimeTick(4), 1_000)
PURGE = Purge(
    *(VCHANNEL.name, TimeTick(5), MessageId(4), MessageId(3), TimeTick(8), TimeTick(4), (PASSED,))
)
OTHER_PURGE = replace(PURGE, vchannel=f"{VCHANNEL.name}1")
FIRST = SnapshotChange(
    checkpoint=WalCheckpoint(MessageId(9), TimeTick(11)),
    vchannels=(VCHANNEL,),
    segments=(SEGMENT,),
    finished=(FINISHED,),
    producers=(PRODUCED,),
    groups=(OTHER_GROUP, GROUP),
    purges=(PURGE, OTHER_PURGE),
)
SECOND = SnapshotChange(
    checkpoint=WalCheckpoint(MessageId(12), TimeTick(15)),
    segments=(replace(SEGMENT, id=SegmentId(14)),),
    gone_segments=(SEGMENT.id,),
    gone_groups=(OTHER_GROUP.key,),
    gone_purges=(OTHER_PURGE.vchannel,),
)


@pytest.fixture(params=["memory", "sqlite"])
async def meta(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Flaky]:
    store: MetaStore = (
        MemoryMetaStore()
        if request.param == "memory"
        else await SqliteMetaStore.open(tmp_path / "meta.db")
    )
    yield Flaky(store)
    await store.close()


async def found(meta: MetaStore, term: int = 99) -> Snapshot:
    claim = await StoredRecovery(meta).claim(P, Term(term))
    assert claim.damage == ()
    return claim.snapshot


async def test_nothing_was_saved_yet(meta: Flaky) -> None:
    assert await found(meta) == Snapshot()


async def test_what_was_saved_is_found_as_it_was(meta: Flaky) -> None:
    claim = await StoredRecovery(meta).claim(P, Term(1))
    await claim.save(FIRST)
    first = Snapshot(
        checkpoint=FIRST.checkpoint,
        vchannels=(VCHANNEL,),
        segments=(SEGMENT,),
        finished=(FINISHED,),
        finished_tick=TimeTick(11),
        producers=(PRODUCED,),
        producers_tick=TimeTick(11),
        groups=(OTHER_GROUP, GROUP),
        purges=(PURGE, OTHER_PURGE),
    )
    assert await found(meta) == first
    claim = await StoredRecovery(meta).claim(P, Term(99))
    await claim.save(SECOND)
    assert await found(meta) == replace(
        first,
        checkpoint=SECOND.checkpoint,
        segments=SECOND.segments,
        groups=(GROUP,),
        purges=(PURGE,),
    )


async def test_another_pchannel_is_another_snapshot(meta: Flaky) -> None:
    store = StoredRecovery(meta)
    await (await store.claim(P, Term(1))).save(FIRST)
    longer = PChannelName(f"{P}1")
    assert (await store.claim(longer, Term(1))).snapshot == Snapshot()


async def test_whoever_claims_later_turns_earlier_ones_away_for_good(meta: Flaky) -> None:
    store = StoredRecovery(meta)
    old = await store.claim(P, Term(1))
    await old.save(FIRST)
    new = await store.claim(P, Term(2))
    for _ in range(2):
        with pytest.raises(Superseded) as caught:
            await old.save(SECOND)
        assert (caught.value.term, caught.value.newer) == (1, 2)
    assert new.snapshot.checkpoint == FIRST.checkpoint
    await new.save(SECOND)
    assert (await found(meta)).checkpoint == SECOND.checkpoint


async def test_an_older_term_cannot_claim_and_the_same_one_can(meta: Flaky) -> None:
    store = StoredRecovery(meta)
    first = await store.claim(P, Term(5))
    with pytest.raises(Superseded):
        await store.claim(P, Term(4))
    second = await store.claim(P, Term(5))
    with pytest.raises(Superseded):
        await first.save(FIRST)
    await second.save(FIRST)


LISTED = 5
"""Records of FIRST in the meta table: a segment and a vchannel with their indexes, and a mark."""


@pytest.mark.parametrize("writes", range(LISTED + 8))
async def test_a_snapshot_that_was_cut_short_leaves_the_checkpoint_behind_the_objects(
    meta: Flaky, writes: int
) -> None:
    store = StoredRecovery(meta, keys_a_write_max=2)
    claim = await store.claim(P, Term(1))
    meta.writes_left = writes
    with pytest.raises(MetaError):
        await claim.save(FIRST)
    meta.writes_left = None
    half = await found(meta, term=1)
    objects = (
        *(half.vchannels, half.segments, half.finished, half.producers, half.groups),
        half.purges,
    )
    assert half.checkpoint is None or all(objects)
    assert sum(map(len, objects)) == max(0, writes - LISTED)
    again = await store.claim(P, Term(1))
    await again.save(FIRST)
    assert (await found(meta)).checkpoint == FIRST.checkpoint


@pytest.mark.parametrize("writes", range(LISTED + 5))
async def test_what_a_cut_short_snapshot_has_the_master_lists_already(
    meta: Flaky, writes: int
) -> None:
    claim = await StoredRecovery(meta, keys_a_write_max=2).claim(P, Term(1))
    meta.writes_left = writes
    with suppress(MetaError):
        await claim.save(FIRST)
    meta.writes_left = None
    half = await found(meta, term=1)
    listed = {key for key, _ in await meta.list("", limit=1000)}
    for segment in half.segments:
        assert {segment_key(segment.id), member_key(logged_segment(segment))} <= listed
    for vchannel in half.vchannels:
        assert {LOG_VCHANNELS + vchannel.name, CHANGED_VCHANNELS + vchannel.name} <= listed


async def test_a_flushed_segment_stays_with_the_master_when_the_log_forgets_it(
    meta: Flaky,
) -> None:
    claim = await StoredRecovery(meta).claim(P, Term(1))
    await claim.save(FIRST)
    flushed = replace(SEGMENT, state=SegmentState.FLUSHED, tick=TimeTick(12))
    await claim.save(SnapshotChange(FIRST.checkpoint, segments=(flushed,)))
    await claim.save(SECOND)
    entry = await meta.get(segment_key(SEGMENT.id))
    assert entry is not None
    kept = decode_segment_meta(entry.value)
    assert (kept.state, kept.close_tick, kept.rows) == (SegmentMetaState.FLUSHED, 12, 3)
    assert await meta.get(flush_key(kept)) is not None
    assert await meta.get(f"recovery/{P}/segment/{SEGMENT.id}") is None


async def test_the_master_learns_once_what_an_older_release_saved(meta: Flaky) -> None:
    await (await StoredRecovery(meta).claim(P, Term(1))).save(FIRST)
    for key, _ in await meta.list("segment", limit=1000):
        await meta.write({}, deletes=[key])
    entry = await meta.get(HEAD)
    assert entry is not None
    await meta.write({HEAD: entry.value.replace(b',"listed":true', b"")})
    claim = await StoredRecovery(meta).claim(P, Term(2))
    grown = replace(SEGMENT, rows=4, tick=TimeTick(10))
    await claim.save(SnapshotChange(FIRST.checkpoint, segments=(grown,)))
    found = await meta.get(segment_key(SEGMENT.id))
    assert found is not None
    assert decode_segment_meta(found.value).rows == 4
    writes = meta.writes
    await meta.write({}, deletes=[LOG_VCHANNELS + VCHANNEL.name])
    await claim.save(SnapshotChange(FIRST.checkpoint))
    assert await meta.get(LOG_VCHANNELS + VCHANNEL.name) is None, "only once"
    assert meta.writes == writes + 2


async def test_a_vchannel_that_the_log_forgets_leaves_the_meta_table(meta: Flaky) -> None:
    claim = await StoredRecovery(meta).claim(P, Term(1))
    await claim.save(FIRST)
    await claim.save(SnapshotChange(FIRST.checkpoint, gone_vchannels=(VCHANNEL.name,)))
    assert await meta.get(LOG_VCHANNELS + VCHANNEL.name) is None


@pytest.mark.parametrize("keys", [2, 100])
async def test_the_same_change_is_saved_again_after_a_failure_or_a_lost_answer(
    meta: Flaky, keys: int
) -> None:
    claim = await StoredRecovery(meta, keys_a_write_max=keys).claim(P, Term(1))
    meta.writes_left = 0
    with pytest.raises(MetaError):
        await claim.save(FIRST)
    meta.writes_left = None
    for answers in range(
        LISTED + 4 if keys == 2 else 1
    ):  # the one that is lost is a later one each time
        meta.fails = iter([*[""] * answers, "after"]).__next__
        with pytest.raises(MetaError):
            await claim.save(FIRST)
    meta.fails = lambda: ""
    await claim.save(FIRST)
    await claim.save(SECOND)
    assert (await found(meta)).checkpoint == SECOND.checkpoint


async def test_an_old_owner_in_the_middle_of_a_snapshot_overwrites_nothing(meta: Flaky) -> None:
    store = StoredRecovery(meta, keys_a_write_max=2)
    old = await store.claim(P, Term(1))
    meta.writes_left = 1
    with pytest.raises(MetaError):
        await old.save(FIRST)
    meta.writes_left = None
    new = await store.claim(P, Term(2))
    await new.save(SECOND)
    before = await meta.list("recovery/", limit=1000)
    with pytest.raises(Superseded):
        await old.save(FIRST)
    assert await meta.list("recovery/", limit=1000) == before


@pytest.mark.parametrize("value", [b"", b"torn", b"[]", b'{"version":2}', b'{"version":1}'])
@pytest.mark.parametrize(
    "part", ["checkpoint", f"vchannel/{VCHANNEL.name}", "segment/6", "finished", "producers"]
)
async def test_what_cannot_be_read_is_told_and_left_out_and_the_rest_still_holds(
    meta: Flaky, part: str, value: bytes
) -> None:
    store = StoredRecovery(meta)
    await (await store.claim(P, Term(1))).save(FIRST)
    await meta.write({f"recovery/{P}/{part}": value})
    claim = await store.claim(P, Term(2))
    (damage,) = claim.damage
    assert f"recovery/{P}/{part}" in damage
    whole = (VCHANNEL, SEGMENT, FINISHED, PRODUCED)
    snapshot = claim.snapshot
    left = (*snapshot.vchannels, *snapshot.segments, *snapshot.finished, *snapshot.producers)
    assert len(left) == len(whole) - (part != "checkpoint")
    assert snapshot.checkpoint is None
    await claim.save(SECOND)
    assert (await store.claim(P, Term(2))).damage == ()
