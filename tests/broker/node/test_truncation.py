"""What a node removes of its logs, for holders that it knows, and for those it cannot ask about."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

import pytest

from actors.testing import run_seeded
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term, TimeTick, TxnId
from broker.model.message import AppendedInTxn, MessageType
from broker.model.record import Record
from broker.model.retention.holders import Hold, HolderKind, PassCause, Removal
from broker.model.retention.policy import LogStart, Retention
from broker.model.txn import TxnContext
from broker.node.state.node_limits import NodeLimits
from broker.ports.wal import Corrupt, LogClosed
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.world import OTHER, PCHANNEL, World, appended, message, running_node

SEGMENT_BYTES = 500
KEPT_BYTES = 1_000
LIMITS = NodeLimits(
    retention=Retention(bytes_max=KEPT_BYTES),
    retention_period_s=1.0,
    hold_bytes_max=3_000,
    unasked_grace_s=6.0,
    tail_age_s=0.5,
    snapshot_records=1,
    snapshot_look_s=0.2,
)


@dataclass
class HoldsFake:
    """A coordinator: `held` is what it knows; `away` plays one that does not answer.

    `full`: it answers, but cannot record a removal.
    """

    held: dict[str, Hold] = field(default_factory=dict)
    away: str = ""
    full: str = ""
    refuses: bool = False
    asked: list[LogStart] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    world: World | None = None
    first_ids: list[int] = field(default_factory=list)

    async def of(
        self, starts: Mapping[PChannelName, LogStart]
    ) -> Mapping[PChannelName, Sequence[Hold]]:
        self.asked += starts.values()
        self._answer()
        return {name: [*self.held.values()] for name in starts}

    async def allow(self, removals: Mapping[PChannelName, Removal]) -> Collection[PChannelName]:
        self._answer()
        if self.full:
            raise Refused(StreamingCode.INNER, self.full)
        self.removals += removals.values()
        if self.world is not None:
            self.first_ids.append((await self.world.offsets()).first_id)
        return [] if self.refuses else removals.keys()

    def hold(
        self,
        name: str,
        from_id: int = 0,
        tick: int = 0,
        bytes_max: int | None = None,
        until_ms: int | None = None,
        vchannels: frozenset[str] = frozenset(),
    ) -> None:
        self.held[name] = Hold(
            *(HolderKind.CURSOR, name, TimeTick(tick), MessageId(from_id)),
            *(bytes_max, until_ms, vchannels),
        )

    def _answer(self) -> None:
        if self.away:
            raise Refused(StreamingCode.INNER, self.away)


def retaining(holds: HoldsFake, limits: NodeLimits = LIMITS) -> AbstractAsyncContextManager[World]:
    return running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), limits, holds=holds)


async def fill(world: World, count: int = 60) -> None:
    for number in range(count):
        await world.append(message("x" * 100, shard=number % 2))
        await world.clock.sleep(0.05)
    await world.clock.sleep(3)


def test_what_a_holder_needs_stays_and_nobody_is_asked_while_nothing_is_due() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        holds.hold("slow", from_id=20, bytes_max=1 << 30)
        async with retaining(holds) as world:
            await world.assign()
            await world.append(message("x"))
            await world.clock.sleep(5)
            assert holds.asked == [], "an idle broker asks nobody"
            await fill(world)
            first_id = (await world.offsets()).first_id
            assert 10 < first_id <= 20
            assert [it.name for it in holds.removals[-1].holders] == ["slow"]
            holds.held.clear()
            await world.clock.sleep(2)
            offsets = await world.offsets()
            assert offsets.first_id > 30
            assert offsets.size_bytes <= KEPT_BYTES + 2 * SEGMENT_BYTES
            await world.clock.sleep(3)
            assert holds.removals[-1].holders == (), "that nobody holds it any more is reported"

    run_seeded(1, scenario)


def test_who_is_passed_is_named_before_anything_is_removed() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        holds.hold("lost", from_id=2, bytes_max=2_000)
        async with retaining(holds) as world:
            await world.assign()
            holds.world = world
            await fill(world)
            told = next(at for at, it in enumerate(holds.removals) if it.passed)
            (passed,) = holds.removals[told].passed
            assert (passed.name, passed.cause, passed.limit) == ("lost", PassCause.BYTES, 2_000)
            assert passed.bytes > 2_000
            assert holds.first_ids[told] <= 2, "not removed before it is named"
            assert (await world.offsets()).first_id > 2
            assert (await world.offsets()).removed_tick >= passed.removed_tick

    run_seeded(2, scenario)


def test_a_removal_that_is_not_allowed_is_not_made() -> None:
    async def scenario() -> None:
        holds = HoldsFake(refuses=True)
        async with retaining(holds) as world:
            await world.assign()
            await fill(world)
            assert holds.removals
            assert (await world.offsets()).first_id == 1
            holds.refuses = False
            await world.clock.sleep(2)
            assert (await world.offsets()).first_id > 1

    run_seeded(3, scenario)


def test_without_an_answer_the_bound_is_kept_and_what_exceeds_it_is_reported() -> None:
    async def scenario() -> None:
        holds = HoldsFake(away="the store is away")
        async with retaining(holds) as world:
            await world.assign()
            await fill(world, 60)
            offsets = await world.offsets()
            assert offsets.size_bytes > KEPT_BYTES + LIMITS.hold_bytes_max + SEGMENT_BYTES
            assert offsets.first_id == 1, "nothing is removed blindly"
            (warning,) = world.node.retention.warnings()
            assert "the store is away" in warning
            assert "3,000 bytes more than retention allows" in warning
            await fill(world, 60)
            offsets = await world.offsets()
            assert offsets.first_id > 1
            assert offsets.size_bytes > LIMITS.hold_bytes_max - SEGMENT_BYTES
            assert offsets.size_bytes < KEPT_BYTES + LIMITS.hold_bytes_max + 3 * SEGMENT_BYTES
            assert "without asking" in world.node.retention.warnings()[1]
            (found,) = [
                it.extra for it in world.system.statistics() if it.path == "/root/node/truncation"
            ]
            assert int(found["unasked_bytes"]) > 0
            assert "the store is away" in str(found["error"])
            holds.away = ""
            await world.clock.sleep(2)
            assert holds.asked[-1].removed_tick >= offsets.removed_tick, "it says what it removed"
            assert (await world.offsets()).size_bytes <= KEPT_BYTES + 2 * SEGMENT_BYTES
            assert len(world.node.retention.warnings()) == 1

    run_seeded(4, scenario)


def test_holders_that_were_known_keep_what_they_need_while_nobody_answers() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        holds.hold("slow", from_id=5, bytes_max=1 << 30)
        async with retaining(holds) as world:
            await world.assign()
            await fill(world, 30)
            holds.away = "the coordinator restarts"
            await fill(world, 60)
            assert (await world.offsets()).first_id <= 5

    run_seeded(5, scenario)


def test_a_new_owner_removes_nothing_before_it_knows_the_holders() -> None:
    async def scenario() -> None:
        wal, holds = MemoryWal(segment_bytes=SEGMENT_BYTES), HoldsFake()
        holds.hold("slow", from_id=5, bytes_max=1 << 30)
        async with running_node(wal, LIMITS, holds=holds) as world:
            await world.assign()
            await fill(world, 30)
            assert await world.remove() is None
        # Another process: it knows nothing of what the first one was told.
        later = HoldsFake(away="no coordinator yet")
        async with running_node(wal, LIMITS, holds=later) as world:
            world.terms.newest[PCHANNEL] = 1
            assert await world.assign(term=2) is None
            await world.append(message("x"))
            await world.clock.sleep(5)
            assert (await world.offsets()).first_id <= 5
            later.held, later.away = holds.held, ""
            await world.clock.sleep(5)
            assert (await world.offsets()).first_id <= 5
            assert (await world.locate(term=2)).channel.term == Term(2)

    run_seeded(6, scenario)


def test_a_transaction_that_was_open_at_the_tick_of_a_holder_stays_whole() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        async with retaining(holds) as world:
            await world.assign()
            begin = message("", kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 60_000))
            (began,) = await world.append(begin)
            assert isinstance(began, AppendedInTxn)
            context = began.txn
            await world.append(message("body", txn=context))
            for _ in range(12):  # so that it ends in another segment than it began in
                await world.append(message("x" * 100, shard=1))
            (between,) = appended(await world.append(message("between", shard=1)))
            holds.hold("at the tick", tick=between.tick, bytes_max=1 << 30)
            await world.append(message("", kind=MessageType.COMMIT_TXN, txn=context))
            await fill(world)
            assert (await world.offsets()).first_id <= began.id, "its first part is needed, too"
            holds.hold("at the tick", tick=(await world.offsets()).closed_tick, bytes_max=1 << 30)
            await world.clock.sleep(2)
            assert (await world.offsets()).first_id > 20

    run_seeded(7, scenario)


def test_a_coordinator_that_answers_but_cannot_record_a_removal_counts_as_silent() -> None:
    async def scenario() -> None:
        holds = HoldsFake(full="database or disk is full")
        async with retaining(holds) as world:
            await world.assign()
            await fill(world, 60)
            assert holds.asked
            assert (await world.offsets()).first_id == 1, "nothing is removed within the grace"
            (warning,) = world.node.retention.warnings()
            assert "cannot be recorded: " in warning
            assert "disk is full" in warning
            await fill(world, 60)
            offsets = await world.offsets()
            assert offsets.first_id > 1
            assert offsets.size_bytes > LIMITS.hold_bytes_max - SEGMENT_BYTES
            assert offsets.size_bytes < KEPT_BYTES + LIMITS.hold_bytes_max + 3 * SEGMENT_BYTES
            assert "without asking" in world.node.retention.warnings()[1]
            holds.full = ""
            await world.clock.sleep(2)
            assert (await world.offsets()).size_bytes <= KEPT_BYTES + 2 * SEGMENT_BYTES
            assert len(world.node.retention.warnings()) == 1

    run_seeded(8, scenario)


def test_that_nobody_holds_a_log_any_more_is_reported_until_it_is_recorded() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        holds.hold("slow", from_id=5, bytes_max=1 << 30)
        async with retaining(holds) as world:
            await world.assign()
            await fill(world, 30)
            holds.full = "disk is full"
            world.node.retention.adopt(Retention(), 3_000)
            await world.clock.sleep(5)
            assert holds.removals[-1].holders
            holds.full = ""
            await world.clock.sleep(2)
            assert holds.removals[-1].holders == ()

    run_seeded(9, scenario)


@pytest.mark.parametrize("from_id", [0, 40])
def test_a_holder_at_a_damaged_record_counts_as_at_the_beginning_of_the_log(
    monkeypatch: pytest.MonkeyPatch, from_id: int
) -> None:
    async def damaged(self: MemoryLog, tick: TimeTick) -> MessageId:
        raise Corrupt("1.wal", 10, "checksum")

    async def scenario() -> None:
        holds = HoldsFake()
        holds.hold("at the damage", tick=1, from_id=from_id, bytes_max=6_000)
        async with retaining(holds) as world:
            await world.assign()
            await fill(world, 20)
            assert (await world.offsets()).first_id == 1, "within its limits it keeps the log"
            await fill(world, 60)
            assert any(it.passed for it in holds.removals), "its limits count"
            assert (await world.offsets()).size_bytes <= KEPT_BYTES + 2 * SEGMENT_BYTES

    monkeypatch.setattr(MemoryLog, "seek_tick", damaged)
    run_seeded(10, scenario)


@pytest.mark.parametrize("failure", [LogClosed(OTHER), RuntimeError("broken")])
def test_a_log_that_cannot_be_read_keeps_everything_and_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    broken = set[int]()
    seek_tick = MemoryLog.seek_tick

    async def failing(self: MemoryLog, tick: TimeTick) -> MessageId:
        if self.term in broken:
            raise failure
        return await seek_tick(self, tick)

    async def scenario() -> None:
        holds = HoldsFake()
        holds.hold("passed", tick=1, bytes_max=1)
        async with retaining(holds) as world:
            await world.assign(OTHER, term=7)
            broken.add(7)
            await world.assign()
            for number in range(60):
                await world.append(message("x" * 100))
                other = replace(message("x" * 100), vchannel=f"{OTHER}_7v{number % 2}")
                await world.append(other, name=OTHER)
            await world.clock.sleep(5)
            assert (await world.offsets()).first_id > 1
            assert (await world.offsets(OTHER)).first_id == 1
            broken.clear()
            await world.clock.sleep(2)
            assert (await world.offsets(OTHER)).first_id > 1

    monkeypatch.setattr(MemoryLog, "seek_tick", failing)
    run_seeded(11, scenario)


def test_a_holder_behind_which_damage_is_skipped_to_the_end_keeps_what_follows_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = MemoryLog.read

    async def skipping(self: MemoryLog, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        return [] if bytes_max == 1 else await read(self, from_id, bytes_max)

    async def scenario() -> None:
        holds = HoldsFake()
        async with retaining(holds) as world:
            await world.assign()
            (last,) = appended(
                [(await world.append(message("x" * 100)))[0] for _ in range(20)][-1:]
            )
            holds.hold("at the tick", tick=last.tick, bytes_max=1 << 30)
            await fill(world)
            assert 10 < (await world.offsets()).first_id <= last.id + 1

    monkeypatch.setattr(MemoryLog, "read", skipping)
    run_seeded(12, scenario)


def test_the_grace_begins_when_retention_is_switched_on_and_ends_when_it_is_off() -> None:
    async def scenario() -> None:
        holds = HoldsFake(away="the store is away")
        limits = replace(LIMITS, retention=Retention())
        async with retaining(holds, limits) as world:
            await world.assign()
            await fill(world, 120)
            rule = world.node.retention
            rule.adopt(Retention(bytes_max=KEPT_BYTES), 3_000)
            await world.clock.sleep(LIMITS.unasked_grace_s - 2)
            assert (await world.offsets()).first_id == 1
            assert rule.warnings()
            rule.adopt(Retention(), 3_000)
            await world.clock.sleep(2)
            assert rule.warnings() == [], "nothing is due, so nobody has to answer"
            rule.adopt(Retention(bytes_max=KEPT_BYTES), 3_000)
            await world.clock.sleep(LIMITS.unasked_grace_s + 3)
            assert (await world.offsets()).first_id > 1

    run_seeded(13, scenario)
