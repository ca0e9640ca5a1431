"""The retention of collections on a node: what goes, what holders keep, and who is named."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from actors.testing import run_seeded
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot
from broker.model.ids import TICK_LOGICAL_BITS, PChannelName, TimeTick, TxnId
from broker.model.message import Appended, AppendedInTxn, MessageType
from broker.model.retention.holders import Hold, HolderKind
from broker.model.retention.policy import LogStart, Retention
from broker.model.txn import TxnContext
from broker.node.state.open_channels import OpenChannel
from broker.ports.space.collection_retentions import Retentions
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.space.test_held_space import LIMITS, HoldsOf
from tests.broker.node.space.test_purging import MINE, OTHERS, land, read
from tests.broker.node.space.test_readers_of_purged import MovedWal
from tests.broker.node.space.test_reclamation import BODY, SEGMENT_BYTES, fill, size
from tests.broker.node.world import World, message, running_node

PAYLOAD_BYTES = len(BODY)


class RetentionsFake:
    """What the metadata store says; `away`: it does not answer."""

    def __init__(self, **limits: int) -> None:
        self.now, self.away = Retentions(), ""
        if limits:
            self.put(MINE, **limits)

    def put(self, vchannel: str, ms: int = 0, size: int = 0) -> None:
        limits = {**self.now.limits, vchannel: Retention(size, ms)}
        if not ms and not size:
            del limits[vchannel]
        self.now = Retentions(self.now.revision + 1, limits)

    async def newer(self, revision: int) -> Retentions | None:
        if self.away:
            raise Refused(StreamingCode.INNER, self.away)
        return None if revision == self.now.revision else self.now


class AppendsWhenAsked(HoldsOf):
    """Whenever it is asked before the first purge, a message is appended: behind the look."""

    world: World | None = None
    purged = False

    async def of(
        self, starts: Mapping[PChannelName, LogStart]
    ) -> Mapping[PChannelName, Sequence[Hold]]:
        self.purged = self.world is not None and channel(self.world).purges.upto(MINE) > 0
        if self.world is not None and not self.purged:
            await self.world.append(message("amid"))
        return await super().of(starts)


def statistics(world: World) -> dict[str, int | float | str]:
    path = "/root/node/retention_keeper"
    (found,) = [it.extra for it in world.system.statistics() if it.path == path]
    return dict(found)


def channel(world: World) -> OpenChannel:
    (found,) = world.node.open_channels.all()
    return found


def test_what_is_too_old_goes_within_two_seconds_and_its_space_comes_back() -> None:
    async def scenario() -> None:
        wal, limits = MemoryWal(segment_bytes=SEGMENT_BYTES), RetentionsFake()
        async with running_node(wal, LIMITS, retentions=limits) as world:
            await world.assign()
            await fill(world)
            await world.clock.sleep(20)
            before = await size(world)
            (young,) = await land(world, "young")
            limits.put(MINE, ms=10_000)
            await world.clock.sleep(2)
            assert await read(world, MINE) == [b"young"]
            assert len(await read(world, OTHERS)) == 20
            await world.clock.sleep(6)
            assert await size(world) < 0.3 * before
            assert await read(world, MINE) == [b"young"]
            await world.clock.sleep(10)
            assert await read(world, MINE) == []
            purges = statistics(world)["purges"]
            await world.clock.sleep(100)
            assert int(statistics(world)["purges"]) <= int(purges) + 1, "an empty one is left alone"
            assert young.tick < channel(world).purges.upto(MINE)
        async with running_node(wal, LIMITS, retentions=limits) as world:
            await world.assign(term=5)
            await land(world, "young again")
            assert await read(world, MINE) == [b"young again"]
            await world.clock.sleep(12)
            assert await read(world, MINE) == []

    run_seeded(1, scenario)


def test_what_is_appended_while_older_messages_are_purged_goes_when_it_is_too_old() -> None:
    async def scenario() -> None:
        held = AppendsWhenAsked()
        async with running_node(
            limits=LIMITS, holds=held, retentions=RetentionsFake(ms=10_000)
        ) as world:
            await world.assign()
            await land(world, "old")
            await world.clock.sleep(9)
            held.world = world
            await world.clock.sleep(3)
            assert held.purged
            assert b"amid" in await read(world, MINE)
            await world.clock.sleep(20)
            assert await read(world, MINE) == []

    run_seeded(1, scenario)


def test_the_newest_bytes_stay_and_older_ones_go() -> None:
    async def scenario() -> None:
        wal, limits = MemoryWal(segment_bytes=SEGMENT_BYTES), RetentionsFake(size=96 << 10)
        async with running_node(wal, LIMITS, retentions=limits) as world:
            await world.assign()
            for _ in range(4):
                await fill(world)
                await world.clock.sleep(3)
                kept = PAYLOAD_BYTES * len(await read(world, MINE))
                assert (96 << 10) - 2 * PAYLOAD_BYTES <= kept <= (128 << 10), kept
            assert len(await read(world, OTHERS)) == 80
            await world.clock.sleep(10)
            assert await size(world) < (96 << 10) + 80 * PAYLOAD_BYTES + 4 * SEGMENT_BYTES
            await world.clock.sleep(100)
            assert PAYLOAD_BYTES * len(await read(world, MINE)) >= (96 << 10) - 2 * PAYLOAD_BYTES

    run_seeded(2, scenario)


def test_by_size_nothing_goes_while_the_log_is_moved_and_nothing_fails() -> None:
    async def scenario() -> None:
        wal, limits = MovedWal(), RetentionsFake()
        async with running_node(wal, LIMITS, retentions=limits) as world:
            await world.assign()
            await fill(world)
            (log,) = wal.logs
            await log.hold()
            limits.put(MINE, size=32 << 10)
            await world.clock.sleep(5)
            before = len(await read(world, MINE))
            assert PAYLOAD_BYTES * before > 64 << 10
            assert statistics(world)["failures"] == 0
            log.release()
            await world.clock.sleep(60)
            assert len(await read(world, MINE)) < before

    run_seeded(12, scenario)


def test_a_retention_shorter_than_the_ticks_removes_closed_ticks_only() -> None:
    async def scenario() -> None:
        node = replace(LIMITS, tick_interval_s=5.0)
        async with running_node(limits=node, retentions=RetentionsFake(ms=1000)) as world:
            await world.assign()
            (landed,) = await world.append(message("one"))
            assert isinstance(landed, Appended)
            for _ in range(20):
                await world.clock.sleep(0.5)
                purged = channel(world).purges.upto(MINE)
                assert purged <= channel(world).tail.closed.tick
            assert channel(world).purges.upto(MINE) >= landed.tick

    run_seeded(3, scenario)


def test_limits_that_change_during_a_round_hold_for_what_is_left_of_it() -> None:
    async def scenario() -> None:
        limits = RetentionsFake(ms=5000)
        async with running_node(limits=LIMITS, retentions=limits) as world:
            await world.assign()
            await land(world, "one", "two")
            for turn in range(40):
                # Above and below the age that the messages have meanwhile, and no limit at all.
                limits.put(MINE, ms=(0, 10**9, 5000)[turn % 3] if turn < 38 else 10**9)
                await world.clock.sleep(0.1)
            assert await read(world, MINE) == [b"one", b"two"]
            limits.put(MINE, ms=1000)
            await world.clock.sleep(2)
            assert await read(world, MINE) == []
            limits.put(MINE)
            await land(world, "three")
            await world.clock.sleep(100)
            assert await read(world, MINE) == [b"three"]
            assert statistics(world)["vchannels"] == 0

    run_seeded(4, scenario)


def test_while_the_store_does_not_answer_the_known_limits_hold_and_the_node_says_so() -> None:
    async def scenario() -> None:
        limits = RetentionsFake(ms=5000)
        async with running_node(limits=LIMITS, retentions=limits) as world:
            await world.assign()
            await land(world, "one")
            limits.away = "the disk is away"
            await world.clock.sleep(3)
            assert "the disk is away" in str(statistics(world)["error"])
            assert int(statistics(world)["failures"]) > 1
            assert await read(world, MINE) == [b"one"]
            limits.away = ""
            await world.clock.sleep(10)
            assert await read(world, MINE) == []
            assert "error" not in statistics(world)

    run_seeded(5, scenario)


@pytest.mark.parametrize("how", ["ended", "passed"])
def test_a_cursor_keeps_what_it_needs_until_it_moves_on_or_is_beyond_its_limit(how: str) -> None:
    async def scenario() -> None:
        held = HoldsOf()
        async with running_node(
            limits=LIMITS, holds=held, retentions=RetentionsFake(ms=1000)
        ) as world:
            await world.assign()
            first, second, third = await land(world, "one", "two", "three")
            late = Hold(HolderKind.CURSOR, "late", tick=first.tick)
            held.holds = [late]
            await world.clock.sleep(10)
            assert await read(world, MINE) == [b"two", b"three"]
            assert channel(world).purges.upto(MINE) == first.tick
            ((holder,),) = channel(world).kept.held.values()
            assert (holder.kind, holder.name) == (HolderKind.CURSOR, "late")
            assert any("'late' holds back" in it for it in world.node.warnings())
            if how == "passed":
                held.holds = [replace(late, until_ms=1)]
            else:
                held.holds = [replace(late, tick=third.tick)]
            await world.clock.sleep(10)
            assert await read(world, MINE) == []
            assert channel(world).kept.held == {}
            passed = [it for _, it in channel(world).purges.passed(0)]
            assert [it.name for it in passed] == (["late"] if how == "passed" else [])
            told = [it for it in world.node.warnings() if "was passed" in it]
            assert len(told) == len(passed)
            assert second.tick <= channel(world).purges.upto(MINE)

    run_seeded(6, scenario)


def test_an_open_transaction_keeps_what_lies_behind_its_begin() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS, retentions=RetentionsFake(ms=1000)) as world:
            await world.assign()
            await land(world, "before")
            begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 600_000))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            await world.append(message("inside", txn=begun.txn))
            await land(world, "beside")
            await world.clock.sleep(10)
            assert await read(world, MINE) == [b"beside"]
            ((holder,),) = channel(world).kept.held.values()
            assert holder.kind is HolderKind.TRANSACTION
            await world.append(message(kind=MessageType.COMMIT_TXN, txn=begun.txn))
            await world.clock.sleep(0.5)
            assert set(await read(world, MINE)) == {b"beside", b"inside", b""}, "with its ends"
            await world.clock.sleep(10)
            assert await read(world, MINE) == []

    run_seeded(7, scenario)


def test_a_group_keeps_what_it_has_not_acknowledged() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS, retentions=RetentionsFake(ms=1000)) as world:
            await world.assign()
            first, _ = await land(world, "one", "two")
            saved = GroupSnapshot(GroupKey(MINE, "slow"), 30_000, at := first.tick, (), at, at)
            table = channel(world).groups.table
            table.groups = type(table)([saved]).groups
            await world.clock.sleep(10)
            assert await read(world, MINE) == [b"two"]

    run_seeded(8, scenario)


def test_an_age_counts_from_the_tick_of_a_message() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS, retentions=RetentionsFake(ms=60_000)) as world:
            await world.assign()
            (landed,) = await land(world, "one")
            kept_ms = 0
            while await read(world, MINE):
                await world.clock.sleep(1)
                kept_ms = world.clock.wall_ms() - (landed.tick >> TICK_LOGICAL_BITS)
                assert kept_ms < 70_000
            assert kept_ms >= 60_000
            refused = await world.open_scanner(MINE)
            assert not isinstance(refused, Refusal)
            assert channel(world).purges.upto(MINE) >= TimeTick(landed.tick)

    run_seeded(9, scenario)


def test_a_node_whose_clock_is_ahead_of_the_ticks_removes_nothing_early() -> None:
    async def scenario() -> None:
        async with running_node(limits=LIMITS, retentions=RetentionsFake(ms=60_000)) as world:
            world.oracle.origin_ms = -3_600_000
            await world.assign()
            await land(world, "one")
            await world.clock.sleep(50)
            assert await read(world, MINE) == [b"one"]
            await world.clock.sleep(30)
            assert await read(world, MINE) == []

    run_seeded(10, scenario)


def test_the_limit_of_bytes_holds_also_after_space_of_a_large_segment_was_given_back() -> None:
    async def scenario() -> None:
        wal, limits = MemoryWal(segment_bytes=4 << 20), RetentionsFake(size=96 << 10)
        async with running_node(wal, LIMITS, retentions=limits) as world:
            await world.assign()
            for count in (500, 300):
                await fill(world, count)
                await world.clock.sleep(30)
                assert PAYLOAD_BYTES * len(await read(world, MINE)) <= 128 << 10

    run_seeded(11, scenario)
