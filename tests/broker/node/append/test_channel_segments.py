"""Collections and segments on a running node: what an Appender writes, seals and flushes."""

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest

from actors import ActorError
from actors.testing import run_seeded
from broker.core.segments.segment_sealing import MemoryShares, SegmentLimits
from broker.model.effect import (
    CollectionCreated,
    CollectionDropped,
    Effect,
    Inserted,
    ManuallyFlushed,
    SegmentCreated,
    SegmentFlushed,
)
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PartitionId, SegmentId, TxnId
from broker.model.message import Appended, AppendedFlush, AppendedInTxn, MessageType, NewMessage
from broker.model.txn import TxnContext
from broker.node.append.group_commit import BATCH_MESSAGES_MAX
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import Fault, MemoryWal
from tests.broker.node.rows_of_collections import (
    COLLECTION,
    VCHANNEL,
    A,
    B,
    batch,
    create_collection,
    delete,
    drop_collection,
    effects_in,
    insert,
    manual_flush,
    stored,
)
from tests.broker.node.world import PCHANNEL, World, appended, message, running_node

ANY_LONG = TxnContext(TxnId(0), 60_000)
BEGIN = NewMessage(VCHANNEL, MessageType.BEGIN_TXN, stored(900, b""), 1, txn=ANY_LONG)


def names(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def segments(effects: list[Effect]) -> list[int]:
    return [effect.segment_id for effect in effects if isinstance(effect, Inserted)]


async def counts(world: World) -> tuple[int, int]:
    found = (await world.offsets()).segments
    return found.growing, found.sealed


async def until_flushed(world: World, flushes: int) -> list[Effect]:
    """In virtual time, at most an hour of it."""
    for _ in range(3600):
        effects = await effects_in(world)
        if names(effects).count("SegmentFlushed") >= flushes:
            return effects
        await world.clock.sleep(1.0)
    raise AssertionError(effects)


def test_a_collection_lives_from_its_creation_to_its_drop() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            appended(await world.append(create_collection(), insert(rows=3)))
            appended(await world.append(insert(), insert(partitions=(B,))))
            (flush,) = await world.append(manual_flush())
            assert isinstance(flush, AppendedFlush)
            appended(await world.append(insert()))
            assert await counts(world) == (1, 0)
            appended(await world.append(drop_collection()))
            effects = await effects_in(world)
            assert names(effects) == [
                "CollectionCreated",
                "SegmentCreated",
                "Inserted",
                "Inserted",
                "SegmentCreated",
                "Inserted",
                "ManuallyFlushed",
                "SegmentCreated",
                "Inserted",
                "CollectionDropped",
            ]
            first, again, other, last = segments(effects)
            assert first == again
            assert len({first, other, last}) == 3
            assert flush.segment_ids == (first, other)
            assert effects[6] == ManuallyFlushed(COLLECTION, flush.segment_ids)
            assert await counts(world) == (0, 0)
            (refused,) = await world.append(insert())
            assert isinstance(refused, Refusal)
            assert refused.code is StreamingCode.UNRECOVERABLE

    run_seeded(1, scenario)


@pytest.mark.parametrize(
    "bad",
    [
        insert(partitions=()),
        insert(partitions=(A, B)),
        insert(partitions=(99,)),
        insert(size_bytes=1 << 30),
        insert(rows=1 << 40),
        NewMessage(VCHANNEL, MessageType.INSERT, stored(2, b"\x08"), 1),
        NewMessage(VCHANNEL, MessageType.MANUAL_FLUSH, stored(9, b"\x1a\x05"), 1),
    ],
)
def test_a_refused_message_leaves_state_and_log_as_they_were(bad: NewMessage) -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            appended(await world.append(create_collection()))
            before = await world.offsets()
            refused, taken = await world.append(bad, message("plain", shard=1))
            assert isinstance(refused, Refusal)
            assert refused.code is StreamingCode.UNRECOVERABLE
            assert isinstance(taken, Appended)
            assert taken.id == before.next_id
            assert (await world.offsets()).segments == before.segments

    run_seeded(2, scenario)


def test_the_largest_batch_has_ticks_for_a_segment_each() -> None:
    async def scenario() -> None:
        limits = NodeLimits(segments=SegmentLimits(segment_bytes=1000))
        async with running_node(limits=limits) as world:
            await world.assign()
            # Until the actors beside the Appender have asked it what they need to start: any
            # request would flush some of the sealed segments. Then between two ticks.
            await world.clock.sleep(1.1)
            appended(await world.append(create_collection()))
            rows = [insert(size_bytes=70)] * BATCH_MESSAGES_MAX
            refused = [it for it in await world.append(*rows) if isinstance(it, Refusal)]
            assert refused[:1] == []
            assert await counts(world) == (1, BATCH_MESSAGES_MAX - 1)

    run_seeded(9, scenario)


def test_a_collection_may_be_required() -> None:
    async def scenario() -> None:
        async with running_node(limits=NodeLimits(require_collection=True)) as world:
            await world.assign()
            (refused,) = await world.append(insert())
            assert isinstance(refused, Refusal)
            assert refused.code is StreamingCode.UNRECOVERABLE
            appended(await world.append(create_collection(), insert()))

    run_seeded(3, scenario)


def test_a_segment_that_is_too_old_is_flushed_without_an_append() -> None:
    async def scenario() -> None:
        limits = NodeLimits(segments=SegmentLimits(life_ms_max=60_000), seal_check_s=10.0)
        async with running_node(limits=limits) as world:
            await world.assign()
            appended(await world.append(create_collection(), insert(), insert(partitions=(B,))))
            effects = await until_flushed(world, 2)
            assert names(effects).count("SegmentFlushed") == 2
            assert await counts(world) == (0, 0)
            appended(await world.append(insert()))
            assert segments(await effects_in(world))[-1] not in segments(effects)

    run_seeded(4, scenario)


def test_a_transaction_holds_its_segment_until_it_ended() -> None:
    async def scenario() -> None:
        limits = NodeLimits(segments=SegmentLimits(segment_bytes=1000))
        async with running_node(limits=limits) as world:
            await world.assign()
            await world.append(create_collection())
            begin = NewMessage(
                VCHANNEL,
                MessageType.BEGIN_TXN,
                b"",
                1,
                txn=TxnContext(0, 60_000),  # type: ignore[arg-type]
            )
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            appended(await world.append(insert(size_bytes=80, txn=begun.txn)))
            appended(await world.append(insert(size_bytes=80)))
            await world.clock.sleep(5.0)
            assert await counts(world) == (1, 1)
            assert "SegmentFlushed" not in names(await effects_in(world))
            commit = NewMessage(VCHANNEL, MessageType.COMMIT_TXN, b"", 1, txn=begun.txn)
            (ended,) = appended(await world.append(commit))
            effects = await until_flushed(world, 1)
            (flushed,) = [it for it in effects if isinstance(it, SegmentFlushed)]
            assert flushed.segment_id == segments(effects)[0]
            later = await effects_in(world, ended.id + 1)
            assert names(later) == ["SegmentFlushed"]

    run_seeded(5, scenario)


def test_the_largest_segments_go_first_when_memory_is_short() -> None:
    async def scenario() -> None:
        limits = NodeLimits(pressure=MemoryShares(growing_high=0.5, low=0.3))
        async with running_node(limits=limits) as world:
            world.memory.total = 1000
            await world.assign()
            await world.append(
                create_collection(), insert(size_bytes=300), insert(partitions=(B,), size_bytes=250)
            )
            effects = await until_flushed(world, 1)
            await world.clock.sleep(60.0)
            assert await counts(world) == (1, 0)
            (flushed,) = [it for it in effects if isinstance(it, SegmentFlushed)]
            assert flushed.segment_id == segments(effects)[0]
            world.memory.process = 700
            await until_flushed(world, 1)
            await world.clock.sleep(60.0)
            assert await counts(world) == (1, 0)  # already below what is allowed
            appended(await world.append(insert(size_bytes=60)))
            await until_flushed(world, 2)

    run_seeded(6, scenario)


def test_messages_of_the_log_carry_what_milvus_needs_to_know() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await world.append(create_collection(version=6), insert())
            effects = await effects_in(world)
            created = effects[1]
            assert isinstance(effects[0], CollectionCreated)
            assert isinstance(created, SegmentCreated)
            assert created.schema_version == 6
            assert created.size_bytes_max + 1 >= 0.9 * 0.12 * (1 << 30)
            assert created.size_bytes_max <= 0.12 * (1 << 30)
            assert isinstance(effects[2], Inserted)
            assert effects[2].segment_id == created.segment_id
            assert CollectionDropped not in map(type, effects)

    run_seeded(8, scenario)


def test_deletes_count_the_same_bytes_after_a_restart() -> None:
    async def scenario() -> None:
        limits = NodeLimits(segments=SegmentLimits(delete_segments=True, deletes_bytes_max=4_000))
        async with running_node(limits=limits) as world:
            await world.assign()
            await say(world, create_collection())
            (begun,) = await world.append(BEGIN)
            assert isinstance(begun, AppendedInTxn)
            for size in (500, 1_000, 1_700):
                await say(world, delete(payload=b"k" * size))
                await say(world, delete(payload=b"k" * 300, txn=begun.txn))
            before = counted(world)
            assert [name for name, *_ in before] == ["capacity", "growing"]
            await world.locate()
            world.system.kill(world.path("appender"))
            await world.locate(term=2)
            # The last owner's older segment is sealed again, for another reason.
            assert [it[1:] for it in counted(world)] == [it[1:] for it in before]

    run_seeded(3, scenario)


def counted(world: World) -> list[tuple[str, int, int, int, list[tuple[int, int]]]]:
    """Each segment: why it is sealed, its id, rows and bytes, and those of open transactions."""
    opened = world.node.open_channels.find(PCHANNEL)
    assert opened is not None
    table = opened.segments
    return [
        (it.sealed.value if it.sealed else "growing", it.id, it.rows, it.size_bytes,
         list(it.held_by.values()))
        for it in (*table.sealed.values(), *table.growing())
    ]  # fmt: skip


VICTIMS = ("appender", "recovery")


@pytest.mark.parametrize("seed", range(8))
def test_a_restart_loses_no_segment_makes_no_second_one_and_flushes_each_once(seed: int) -> None:
    rng = random.Random(seed)
    limits = NodeLimits(
        segments=SegmentLimits(segment_bytes=1000, life_ms_max=3_000),
        seal_check_s=0.5,
        snapshot_period_s=0.3,
        snapshot_look_s=0.1,
    )

    def fault(_channel: object, _records: object) -> Fault | None:
        return rng.choice((Fault.LOST, Fault.KEPT)) if rng.random() < 0.02 else None

    async def scenario() -> None:
        wal = MemoryWal(fault_of=fault)
        async with running_node(wal, limits, seed=seed) as world:
            await world.assign()
            await say(world, create_collection())
            for _ in range(80):
                match rng.randrange(12):
                    case 0:
                        await world.locate()
                        with suppress(ActorError):  # it is being restarted
                            world.system.kill(world.path(rng.choice(VICTIMS)))
                    case 1:
                        await say(world, manual_flush())
                    case 2:
                        await world.clock.sleep(rng.random() * 2)
                    case 3 | 4 | 5:
                        await say(world, batch(rng.randint(1, 3), rng.choice((5, 60))))
                    case _:
                        partition = rng.choice((A, B))
                        await say(
                            world, insert(partitions=(partition,), size_bytes=rng.choice((5, 60)))
                        )
            await say(world, drop_collection())
            check_promises(await effects_in(world))

    run_seeded(seed, scenario)


async def say(world: World, new: NewMessage) -> None:
    """Until the log says yes; what it may have taken before counts as well."""
    for _ in range(1000):
        (outcome,) = await world.append(new)
        if isinstance(outcome, Appended):
            return
        await world.clock.sleep(0.05)
    raise AssertionError(outcome)


def check_promises(effects: Sequence[Effect]) -> None:
    """Created once, then its rows, then flushed once; one at a time grows in a partition."""
    newest: dict[PartitionId, SegmentId] = {}
    open_now: set[SegmentId] = set()
    created: set[SegmentId] = set()
    for effect in effects:
        match effect:
            case SegmentCreated():
                assert effect.segment_id not in created
                created.add(effect.segment_id)
                open_now.add(effect.segment_id)
                newest[effect.partition_id] = effect.segment_id
            case Inserted():
                assert effect.segment_id in open_now
                assert effect.segment_id == newest[effect.partition_id]
            case SegmentFlushed():
                open_now.remove(effect.segment_id)
            case ManuallyFlushed():
                assert set(effect.segment_ids) == open_now
                open_now = set()
            case CollectionDropped():
                open_now = set()
            case _:
                continue
    assert created
    assert not open_now
