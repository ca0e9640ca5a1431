"""One consumer: where it starts, what it sees, what it costs, and how errors reach it."""

import asyncio
from dataclasses import replace

import anyio
import pytest

from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.message import Appended, AppendedInTxn, ClosedTick
from broker.model.position import FromLatest, MessageTypes, ReadPosition, StartFrom, TimeTickGte
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.model.txn import TxnContext
from broker.node.directory_messages import ScannerOpened
from broker.node.scanner import READ_ON_S_MAX
from broker.node.scanner_messages import Delivery, Pull
from broker.node.state.node_limits import NodeLimits
from broker.ports.wal import Corrupt
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.core.log.singly import messages_of
from tests.broker.node.world import PCHANNEL, Reader, World, message, running_node


async def opened(world: World, **wanted: object) -> ScannerOpened:
    answer = await world.open_scanner(**wanted)  # type: ignore[arg-type]
    assert isinstance(answer, ScannerOpened)
    return answer


def test_latest_gives_only_what_comes_after_the_opening_and_a_stored_tick_soon() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await world.append(message("old"))
            latest = await opened(world, policy=FromLatest())
            first = await latest.scanner.ask(Pull(latest.cursor, 1 << 20), deadline_s=9)
            assert isinstance(first, Delivery)
            await world.append(message("new"))
            cursor, items = first.cursor, list(first.items)
            while cursor.next_id < (await world.offsets()).next_id:
                more = await latest.scanner.ask(Pull(cursor, 1 << 20), deadline_s=9)
                assert isinstance(more, Delivery)
                cursor, items = more.cursor, [*items, *more.items]
            bodies = [item.body for item in messages_of(items)]
            assert bodies == [b"new"]
            assert any(isinstance(item, ClosedTick) and item.persisted for item in items)

    run_seeded(1, scenario)


def test_filters_remove_and_nothing_else() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await world.append(message("a"), message("b", kind=3))
            (last,) = await world.append(message("c", kind=3))
            assert isinstance(last, Appended)
            vchannel = f"{PCHANNEL}_7v0"
            reader = Reader(world, vchannel, (MessageTypes(frozenset({3})), TimeTickGte(last.tick)))
            await reader.read_until(last.id)
            assert [m.body for m in reader.messages] == [b"c"]
            assert all(event.tick >= last.tick for event in reader.events)

    run_seeded(2, scenario)


def test_messages_for_other_vchannels_only_move_the_closed_tick() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            reader = Reader(world, f"{PCHANNEL}_7v1")
            await reader.pull()
            (outcome,) = await world.append(message("for shard 0", shard=0))
            assert isinstance(outcome, Appended)
            await reader.read_until(outcome.id)
            assert reader.messages == []
            assert reader.ticks[-1].tick >= outcome.tick

    run_seeded(3, scenario)


def test_a_newer_pull_replaces_one_that_waits() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            scanner = await opened(world, policy=FromLatest())
            first = await scanner.scanner.ask(Pull(scanner.cursor, 1), deadline_s=9)
            assert isinstance(first, Delivery)
            async with asyncio.TaskGroup() as tasks:
                older = tasks.create_task(scanner.scanner.ask(Pull(first.cursor, 1), deadline_s=9))
                await asyncio.sleep(0)
                newer = tasks.create_task(scanner.scanner.ask(Pull(first.cursor, 1), deadline_s=9))
            assert {type(older.result()), type(newer.result())} == {Delivery}

    run_seeded(4, scenario)


def test_a_caller_that_left_is_not_waited_for() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            scanner = await opened(world, policy=FromLatest())
            cursor = scanner.cursor
            for _ in range(3):
                pending = asyncio.get_running_loop().create_task(
                    scanner.scanner.ask(Pull(cursor, 1), deadline_s=9)
                )
                await asyncio.sleep(0.001)
                pending.cancel()
                await world.clock.sleep(0.5)
            answer = await scanner.scanner.ask(Pull(cursor, 1 << 20), deadline_s=9)
            assert isinstance(answer, Delivery)

    run_seeded(5, scenario)


def test_a_slow_consumer_holds_no_more_than_its_credit() -> None:
    async def scenario() -> None:
        limits = NodeLimits(tail_bytes_max=20_000, tail_age_s=0.3)
        async with running_node(MemoryWal(segment_bytes=10_000), limits) as world:
            await world.assign()
            reader = Reader(world)
            await reader.pull(100)
            for _ in range(300):
                await world.append(*[message("x" * 1_000)] * 3)
            world_memory = world.node.open_channels.memory.size_bytes
            assert world_memory <= 20_000 + 5_000
            scanner = _inside(world)
            cached = 0
            while reader.cursor.next_id <= 300:
                await reader.pull(500)
                cached = max(cached, int(scanner.statistics()["cached_bytes"]))
            assert 0 < cached <= 70_000
            await reader.read_until((await world.offsets()).next_id - 1)
            ids = [event.id for event in reader.events if event.id in range(2, 900)]
            assert len(set(ids)) == 898

    run_seeded(6, scenario)


def _inside(world: World):  # type: ignore[no-untyped-def]
    slot = world.system._slot(world.path("scanners/scanner-1"))
    assert slot.cell is not None
    return slot.cell.actor


def test_a_consumer_that_asks_for_no_more_is_where_its_last_answer_ended() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            for number in range(20):
                await world.append(message(f"{number}"))
            found = await opened(world)
            scanner = _inside(world)
            assert (scanner.statistics()["next_id"], scanner.statistics()["tick"]) == (0, 0)
            answer = await found.scanner.ask(Pull(found.cursor, 1), deadline_s=9)
            assert isinstance(answer, Delivery)
            given = scanner.statistics()["next_id"], scanner.statistics()["tick"]
            assert given == (answer.cursor.next_id, answer.cursor.tick)
            assert found.cursor.next_id < answer.cursor.next_id < (await world.offsets()).next_id
            assert answer.cursor.tick > 0

    run_seeded(3, scenario)


def test_skipping_many_records_reports_progress() -> None:
    async def scenario() -> None:
        limits = NodeLimits(tail_bytes_max=1_000, tail_age_s=0.1, read_ahead_bytes_max=2_000)
        async with running_node(MemoryWal(segment_bytes=10_000), limits) as world:
            await world.assign()
            for _ in range(200):
                await world.append(message("x" * 900, shard=0))
            await world.append(message("wanted", shard=1))
            reader = Reader(world, f"{PCHANNEL}_7v1", (TimeTickGte(TimeTick(1)),))
            answers = 0
            while not reader.messages:
                await reader.pull(1_000)
                answers += 1
            assert answers > 3
            assert [m.body for m in reader.messages] == [b"wanted"]

    run_seeded(7, scenario)


class Slow(MemoryWal):
    """Each read of its logs takes a second."""

    async def open(self, channel, term):  # type: ignore[no-untyped-def]
        log = await super().open(channel, term)

        async def read(from_id: MessageId, bytes_max: int):  # type: ignore[no-untyped-def]
            await anyio.sleep(1.0)
            return await MemoryLog.read(log, from_id, bytes_max)

        log.read = read  # type: ignore[method-assign]
        return log


def test_skipping_many_records_of_a_slow_log_reports_progress_in_time() -> None:
    async def scenario() -> None:
        limits = NodeLimits(tail_bytes_max=1_000, tail_age_s=0.1, read_ahead_bytes_max=2_000)
        async with running_node(Slow(segment_bytes=10_000), limits) as world:
            await world.assign()
            for _ in range(200):
                await world.append(message("x" * 900, shard=0))
            await world.append(message("wanted", shard=1))
            reader = Reader(world, f"{PCHANNEL}_7v1", (TimeTickGte(TimeTick(1)),))
            while not reader.messages:
                before, began_s = reader.cursor, anyio.current_time()
                await reader.pull(1_000)
                assert reader.cursor.next_id > before.next_id
                # A read that replays, one that is in progress, and what it may go on for.
                assert anyio.current_time() - began_s <= READ_ON_S_MAX + 3.0
            assert [m.body for m in reader.messages] == [b"wanted"]

    run_seeded(7, scenario)


class Damaged(MemoryWal):
    """A log whose old part does not read."""

    async def open(self, channel, term):  # type: ignore[no-untyped-def]
        log = await super().open(channel, term)

        async def read(from_id: MessageId, bytes_max: int):  # type: ignore[no-untyped-def]
            if from_id < 5:
                raise Corrupt("by-dev/seg-1", 4096, "checksum")
            return await MemoryLog.read(log, from_id, bytes_max)

        log.read = read  # type: ignore[method-assign]
        return log


def test_damage_is_reported_by_file_and_offset() -> None:
    async def scenario() -> None:
        async with running_node(Damaged(), NodeLimits(tail_age_s=0.1)) as world:
            await world.assign()
            for _ in range(10):
                await world.append(message("x"))
                await world.clock.sleep(0.3)
            scanner = await opened(world)
            answer = await scanner.scanner.ask(Pull(ReadPosition(MessageId(2)), 100), deadline_s=9)
            assert isinstance(answer, Refusal)
            assert answer.code is StreamingCode.UNRECOVERABLE
            assert "by-dev/seg-1: damaged at byte 4096" in answer.cause
            after = await scanner.scanner.ask(Pull(ReadPosition(MessageId(6)), 100), deadline_s=9)
            assert isinstance(after, Delivery)

    run_seeded(8, scenario)


async def transaction(world: World, *bodies: str) -> list[AppendedInTxn]:
    """Where its begin, its bodies and its commit landed."""
    (begun,) = await world.append(message("", kind=900, txn=TxnContext(TxnId(0), 0)))
    assert isinstance(begun, AppendedInTxn)
    landed = [begun]
    for body, kind in (*((body, 2) for body in bodies), ("", 901)):
        (outcome,) = await world.append(message(body, kind=kind, txn=begun.txn))
        assert isinstance(outcome, AppendedInTxn)
        landed.append(outcome)
    return landed


def without_a_body(records: list[Record], place: int) -> list[Record]:
    """As if another writer's record were lost: its ids belong to somebody else now."""
    lost = replace(records[place], txn=None, vchannel=f"{PCHANNEL}_7v9")
    return [*records[:place], lost, *records[place + 1 :]]


def with_an_old_tick(records: list[Record], place: int) -> list[Record]:
    """As a writer that was fenced too late would leave it."""
    old = replace(records[place], base_tick=records[place - 1].base_tick)
    return [*records[:place], old, *records[place + 1 :]]


@pytest.mark.parametrize(
    ("harm", "said"),
    [(without_a_body, "bodies of transaction"), (with_an_old_tick, "was seen")],
    ids=["a lost body", "a tick that does not grow"],
)
def test_an_inconsistent_log_is_an_error_for_its_reader(
    harm: object, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        wal = MemoryWal()
        async with running_node(wal, NodeLimits(tail_bytes_max=1_000, tail_age_s=0.3)) as world:
            await world.assign()
            await world.append(message("before"))
            _, first, _, commit = await transaction(world, "a", "b")
            await world.append(message("after"))
            await world.clock.sleep(2)
            await world.append(message("x" * 3_000))  # so that the rest is read from the log
            stored = wal._channels[PCHANNEL]
            place = [record.base_id for record in stored.records].index(first.id)
            stored.records = harm(stored.records, place)  # type: ignore[operator]
            reader = Reader(world, f"{PCHANNEL}_7v0")
            answers = [await reader.pull() for _ in range(5)]
            assert [it.body for it in reader.messages] == [b"before"]
            refused = [it for it in answers if isinstance(it, Refusal)]
            assert {it.code for it in refused} == {StreamingCode.UNRECOVERABLE}
            assert all(said in it.cause for it in refused)
            assert isinstance(answers[-1], Refusal), "it stays said"
            assert _inside(world).statistics()["violations"] == len(refused)
            meter = world.node.meters.of(PCHANNEL)
            assert meter.tick_violations + meter.count_mismatches == len(refused)
            assert reader.cursor.next_id <= commit.id
            beyond = await opened(world, vchannel=f"{PCHANNEL}_7v0", policy=StartFrom(commit.id))
            assert beyond.cursor.next_id == commit.id

    run_seeded(11, scenario)
    assert said in caplog.text
    assert PCHANNEL in caplog.text


def test_a_start_that_retention_removed_is_refused_while_memory_still_holds_it() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=400)) as world:
            await world.assign()
            for place in range(30):
                await world.append(message(f"{place} " + "x" * 100))
            channel = world.node.open_channels.find(PCHANNEL)
            assert channel is not None
            everything = await opened(world)
            steady = await opened(world)
            begun = await steady.scanner.ask(Pull(steady.cursor, 1), deadline_s=9)
            assert isinstance(begun, Delivery)
            planned = await opened(world, policy=StartFrom(MessageId(3)))
            await channel.log.truncate(MessageId(20), Retention(bytes_max=1), 0)
            first_id = channel.offsets().first_id
            assert max(begun.cursor.next_id, 4) < first_id
            assert channel.tail.read(MessageId(3)), "memory holds what retention removed"

            for cursor in (planned.cursor, ReadPosition(MessageId(first_id - 1))):
                got = await planned.scanner.ask(Pull(cursor, 1 << 20), deadline_s=9)
                assert isinstance(got, Refusal), got
                assert got.code is StreamingCode.UNRECOVERABLE
                assert "removed by retention" in got.cause
            left = await everything.scanner.ask(Pull(everything.cursor, 1 << 20), deadline_s=9)
            assert isinstance(left, Delivery), left
            ids = [it.id for it in messages_of(left.items)]
            assert ids[0] >= first_id
            more = await steady.scanner.ask(Pull(begun.cursor, 1 << 20), deadline_s=9)
            assert isinstance(more, Delivery), more
            ids = [it.id for it in messages_of(more.items)]
            assert ids[0] < first_id, "a reader that has begun misses nothing"

    run_seeded(13, scenario)


def test_a_transaction_cut_by_retention_fails_only_readers_that_need_it() -> None:
    async def scenario() -> None:
        wal = MemoryWal(segment_bytes=400)
        async with running_node(wal, NodeLimits(tail_bytes_max=1_000, tail_age_s=0.3)) as world:
            await world.assign()
            landed = await transaction(world, *["x" * 100] * 12)
            begin, commit = landed[0], landed[-1]
            await world.append(message("after"))
            await world.clock.sleep(2)
            await world.append(message("y" * 3_000))
            channel = world.node.open_channels.find(PCHANNEL)
            assert channel is not None
            await channel.log.truncate(MessageId(commit.id - 4), Retention(bytes_max=1), 0)
            first_id = channel.offsets().first_id
            assert begin.id < first_id < commit.id - 1

            async def read(start_id: int) -> list[Delivery | Refusal]:
                scanner = await opened(world, policy=StartFrom(MessageId(start_id)))
                cursor, answers = scanner.cursor, list[Delivery | Refusal]()
                while cursor.next_id < channel.tail.next_id:
                    answer = await scanner.scanner.ask(Pull(cursor, 1 << 20), deadline_s=9)
                    answers.append(answer)
                    if isinstance(answer, Refusal):
                        break
                    cursor = answer.cursor
                return answers

            (got,) = await read(first_id + 1)
            assert isinstance(got, Refusal)
            assert got.code is StreamingCode.UNRECOVERABLE
            assert "retention removed" in got.cause
            items = [
                it
                for each in await read(first_id)
                if isinstance(each, Delivery)
                for it in each.items
            ]
            bodies = [it.body for it in messages_of(items)]
            assert bodies == [b"after", b"y" * 3_000]
            behind = await read(commit.id + 1)
            assert all(isinstance(each, Delivery) for each in behind)

    run_seeded(12, scenario)
