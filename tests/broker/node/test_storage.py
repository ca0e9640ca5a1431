"""Failing storage, fenced logs, retention and a failing oracle: what writers and readers get."""

import asyncio
from dataclasses import dataclass, field

import pytest

from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term
from broker.model.message import Appended
from broker.model.position import FromLatest, ReadPosition, StartFrom
from broker.model.retention.policy import Retention
from broker.node.directory_messages import ScannerOpened
from broker.node.scanner_messages import Delivery, Pull
from broker.node.state.node_limits import NodeLimits
from broker.ports.wal import Corrupt, UnknownFormat, Unsuitable, WalError, WriterFailed
from broker.wal.memory_wal import Fault, MemoryLog, MemoryWal
from tests.broker.node.world import PCHANNEL, Reader, World, appended, message, running_node


@dataclass
class Disk:
    """A storage that can be full."""

    full: bool = False
    keeps: bool = False
    wal: MemoryWal = field(init=False)

    def __post_init__(self) -> None:
        self.wal = MemoryWal(fault_of=self._fault, is_writable=lambda: not self.full)

    def _fault(self, _channel: object, _records: object) -> Fault | None:
        if not self.full:
            return None
        return Fault.KEPT if self.keeps else Fault.LOST


async def refused(world: World, text: str = "x") -> Refusal:
    (outcome,) = await world.append(message(text))
    assert isinstance(outcome, Refusal), outcome
    return outcome


def test_a_full_disk_refuses_appends_serves_reads_and_recovers() -> None:
    async def scenario() -> None:
        disk = Disk()
        async with running_node(disk.wal) as world:
            await world.assign()
            await world.append(message("before"))
            disk.full = True
            first = await refused(world)
            assert first.code is StreamingCode.UNKNOWN
            assert "may or may not" in first.cause
            await world.clock.sleep(5)
            later = await refused(world)
            assert later.code is StreamingCode.ON_SHUTDOWN
            assert "storage refused" in later.cause
            assert "may or may not" not in later.cause
            reader = Reader(world)
            await reader.read_until((await world.offsets()).next_id - 1)
            assert [m.body for m in reader.messages] == [b"before"]
            waited = await reader.pull()
            assert isinstance(waited, Delivery)
            assert waited.items == ()
            assert waited.tick is not None, "or a reader up to a tick would wait for the disk"
            assert waited.tick.tick == (await world.offsets()).closed_tick
            disk.full = False
            await world.locate(PCHANNEL, 2)
            appended(await world.append(message("after")))
            await reader.read_until((await world.offsets()).next_id - 1)
            assert [m.body for m in reader.messages] == [b"before", b"after"]

    run_seeded(1, scenario)


def test_a_full_disk_logs_one_warning_at_its_begin_and_one_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = Disk()
        async with running_node(disk.wal) as world:
            await world.assign()
            disk.full = True
            await refused(world)
            await refused(world)
            disk.full = False
            await world.locate(PCHANNEL, 2)

    run_seeded(13, scenario)
    refuses, is_back = [it for it in caplog.records if it.levelname != "INFO"]
    assert refuses.getMessage() == (
        f"appends are refused, reads continue: storage refused: {PCHANNEL}: injected fault"
    )
    assert is_back.getMessage().endswith(f"{PCHANNEL}: the storage takes writes again")
    assert {it.levelname for it in (refuses, is_back)} == {"WARNING"}
    assert is_back.exc_info is None


def test_a_group_of_unknown_outcome_may_be_read_back_by_the_next_term() -> None:
    async def scenario() -> None:
        disk = Disk(keeps=True)
        async with running_node(disk.wal) as world:
            await world.assign()
            disk.full = True
            await refused(world, "maybe")
            reader = Reader(world)
            await reader.pull()
            assert reader.messages == [], "what is not acknowledged is not shown"
            disk.full = False
            await world.locate(PCHANNEL, 2)
            await reader.read_until((await world.offsets()).next_id - 1)
            assert [m.body for m in reader.messages] == [b"maybe"]

    run_seeded(2, scenario)


def test_a_disk_that_is_full_from_the_start_burns_no_terms_and_opens_later() -> None:
    async def scenario() -> None:
        disk = Disk(full=True)
        async with running_node(disk.wal) as world:
            answer = await world.assign(term=7)
            assert isinstance(answer, Refusal)
            assert answer.code is StreamingCode.ON_SHUTDOWN
            told = f"{PCHANNEL}: the storage takes no writes: it was told to take none; retrying"
            assert answer.cause == told
            await world.clock.sleep(60)
            disk.full = False
            assert (await world.locate()).channel.term == 7

    run_seeded(3, scenario)


def test_a_fenced_appender_reports_it_and_closes_the_channel() -> None:
    async def scenario() -> None:
        wal = MemoryWal()
        async with running_node(wal) as world:
            await world.assign()
            located = await world.locate()
            await wal.open(PCHANNEL, Term(9))
            refusal = await refused(world)
            assert refusal.code is StreamingCode.CHANNEL_FENCED
            await world.clock.sleep(1)
            assert world.node.open_channels.find(PCHANNEL) is None
            assert ("closed", PCHANNEL, located.channel.term) in world.observer.events
            assert world.terms.newest[PCHANNEL] == 1, "nobody fights back"

    run_seeded(4, scenario)


def test_a_term_that_was_there_already_cannot_be_opened() -> None:
    async def scenario() -> None:
        wal = MemoryWal()
        await wal.open(PCHANNEL, Term(9))
        async with running_node(wal) as world:
            answer = await world.assign(term=5)
            assert isinstance(answer, Refusal)
            assert answer.code is StreamingCode.CHANNEL_FENCED
            assert await world.remove(term=5) is None
            assert await world.assign(term=10) is None

    run_seeded(5, scenario)


class Unopenable(MemoryWal):
    """Its logs cannot be opened, however often somebody tries."""

    def __init__(self, why: WalError) -> None:
        super().__init__()
        self._why = why

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        raise self._why


@pytest.mark.parametrize(
    ("why", "to_do"),
    [
        (Corrupt("topic t", 7, "foreign", "offset"), "set TIDEMARK_SKIP_DAMAGE=true to skip what"),
        (UnknownFormat("seg-1", 9, 1), "start the release that wrote it"),
        (Unsuitable("two partitions; the log needs one"), "the log needs one"),
    ],
)
def test_a_log_that_no_retry_opens_is_told_with_what_to_do(why: WalError, to_do: str) -> None:
    async def scenario() -> None:
        async with running_node(Unopenable(why)) as world:
            answer = await world.assign()
            assert isinstance(answer, Refusal)
            assert str(why) in answer.cause
            assert to_do in answer.cause

    run_seeded(8, scenario)


def test_removed_data_is_an_error_with_the_range_and_never_silence() -> None:
    async def scenario() -> None:
        limits = NodeLimits(
            retention=Retention(bytes_max=2_000),
            retention_period_s=1.0,
            tail_age_s=0.5,
            snapshot_records=1,
            snapshot_look_s=0.5,
        )
        async with running_node(MemoryWal(segment_bytes=500), limits) as world:
            await world.assign()
            opened = await world.open_scanner()
            assert isinstance(opened, ScannerOpened)
            for number in range(60):
                await world.append(message("x" * 100, shard=number % 2))
                await world.clock.sleep(0.05)
            await world.clock.sleep(2)
            offsets = await world.offsets()
            assert offsets.first_id > 10
            answer = await opened.scanner.ask(Pull(ReadPosition(MessageId(3)), 1000), deadline_s=9)
            assert isinstance(answer, Refusal)
            assert answer.code is StreamingCode.UNRECOVERABLE
            assert f"[{offsets.first_id}, " in answer.cause
            again = await world.open_scanner(policy=StartFrom(MessageId(3)))
            assert isinstance(again, Refusal)
            assert again.code is StreamingCode.UNRECOVERABLE
            assert isinstance(await world.open_scanner(policy=FromLatest()), ScannerOpened)

    run_seeded(6, scenario)


def test_an_id_that_is_not_written_yet_is_refused() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            opened = await world.open_scanner()
            assert isinstance(opened, ScannerOpened)
            answer = await opened.scanner.ask(Pull(ReadPosition(MessageId(99)), 1000), deadline_s=9)
            assert isinstance(answer, Refusal)
            assert answer.code is StreamingCode.INVALID_ARGUMENT

    run_seeded(7, scenario)


def test_an_unavailable_oracle_refuses_appends_until_it_is_back() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            world.oracle.broken = True
            await world.clock.sleep(1)
            assert (await refused(world)).code is StreamingCode.INNER
            world.oracle.broken = False
            appended(await world.append(message("back")))

    run_seeded(8, scenario)


def test_an_oracle_behind_the_log_is_refused() -> None:
    async def scenario() -> None:
        wal = MemoryWal()
        async with running_node(wal) as world:
            await world.assign()
            await world.append(message("x"))
        async with running_node(wal) as world:
            world.oracle.origin_ms = -1_000_000_000
            answer = await world.assign(term=2)
            assert isinstance(answer, Refusal)
            assert "the oracle gave tick" in answer.cause

    run_seeded(9, scenario)


def test_an_oracle_that_goes_backwards_is_refused() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            world.oracle.origin_ms = -1_000_000_000
            world.oracle.next = 1
            await world.clock.sleep(1)
            assert "went backwards" in (await refused(world)).cause

    run_seeded(11, scenario)


def test_a_stalled_disk_stalls_nobody_else_and_waiting_readers_are_answered() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        gate.set()

        async def pause() -> None:
            await gate.wait()

        async with running_node(MemoryWal(pause=pause)) as world:
            await world.assign()
            reader = Reader(world)
            await reader.pull()
            gate.clear()
            pending = asyncio.get_running_loop().create_task(world.append(message("slow")))
            for _ in range(8):
                answer = await reader.pull()
                assert isinstance(answer, Delivery)
            assert reader.messages == []
            gate.set()
            (outcome,) = await pending
            assert isinstance(outcome, Appended)

    run_seeded(10, scenario)


class Unremovable(MemoryWal):
    """A storage that fails to drop old data, in one of several ways."""

    failure: WalError | None = None

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        log = await super().open(channel, term)

        async def truncate(before_id: MessageId, retention: Retention, now_ms: int) -> MessageId:
            if self.failure is not None:
                raise self.failure
            return log.bounds().first_id

        log.truncate = truncate  # type: ignore[method-assign]
        return log


def test_failing_to_drop_old_data_stops_nothing_unless_the_log_is_lost() -> None:
    async def scenario() -> None:
        wal = Unremovable()
        limits = NodeLimits(
            retention=Retention(bytes_max=1), retention_period_s=1.0, snapshot_records=1
        )
        async with running_node(wal, limits) as world:
            await world.assign()
            wal.failure = Corrupt("seg-1", 1, "checksum")
            await world.clock.sleep(3)
            appended(await world.append(message("x")))
            assert (await world.locate()).channel.term == 1
            wal.failure = WriterFailed("the disk is gone")
            await world.clock.sleep(1.1)
            wal.failure = None
            assert (await world.locate(term=2)).channel.term == 2

    run_seeded(12, scenario)
