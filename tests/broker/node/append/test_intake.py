"""Back-pressure in front of an Appender, and the refusal for each failure."""

import asyncio

import anyio

from actors import StaleTerm
from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.message import Appended
from broker.node.append.group_commit import BATCH_MESSAGES_MAX
from broker.node.append.intake import append, append_then
from broker.node.appender_messages import RunOutcome
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.world import PCHANNEL, appended, message, running_node


class Gate:
    """A storage that takes its time until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.wal = MemoryWal(pause=self.open.wait)  # type: ignore[arg-type]


def refusal(outcomes: tuple[RunOutcome, ...]) -> Refusal:
    (outcome,) = set(outcomes)
    assert isinstance(outcome, Refusal)
    return outcome


def test_bytes_in_flight_are_bounded_and_the_excess_is_refused() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with running_node(gate.wal, NodeLimits(backlog_bytes_max=1_000)) as world:
            await world.assign()
            located = await world.locate()
            gate.open.clear()
            async with asyncio.TaskGroup() as tasks:
                pending = [
                    tasks.create_task(append(located, (message("x" * 400),), deadline_s=30))
                    for _ in range(2)
                ]
                await world.clock.sleep(0.01)
                assert located.backlog.bytes_waiting == 800
                got = refusal(await append(located, (message("y" * 400),) * 2, deadline_s=30))
                assert got.code is StreamingCode.INNER
                assert "nothing was stored" in got.cause
                gate.open.set()
            assert all(isinstance(task.result()[0], Appended) for task in pending)
            assert located.backlog.bytes_waiting == 0

    run_seeded(1, scenario)


def test_batches_in_flight_are_bounded_too() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with running_node(gate.wal, NodeLimits(backlog_batches_max=4)) as world:
            await world.assign()
            located = await world.locate()
            gate.open.clear()
            async with asyncio.TaskGroup() as tasks:
                pending = [
                    tasks.create_task(append(located, (message("x"),), deadline_s=30))
                    for _ in range(12)
                ]
                await world.clock.sleep(0.01)
                gate.open.set()
            outcomes = [task.result()[0] for task in pending]
            assert {type(outcome) for outcome in outcomes} == {Appended, Refusal}

    run_seeded(2, scenario)


def test_no_answer_in_time_means_that_the_outcome_is_unknown() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with running_node(gate.wal) as world:
            await world.assign()
            located = await world.locate()
            gate.open.clear()
            got = refusal(await append(located, (message("x"),), deadline_s=0.5))
            assert got.code is StreamingCode.UNKNOWN
            assert "may or may not" in got.cause
            gate.open.set()

    run_seeded(3, scenario)


def test_an_appender_that_dies_with_a_batch_in_hand_leaves_its_outcome_unknown() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with running_node(gate.wal) as world:
            await world.assign()
            located = await world.locate()
            gate.open.clear()
            async with asyncio.TaskGroup() as tasks:
                pending = tasks.create_task(append(located, (message("x"),), deadline_s=30))
                await world.clock.sleep(0.1)
                world.system.kill(world.path("appender"))
                gate.open.set()
            got = refusal(pending.result())
            assert got.code is StreamingCode.UNKNOWN
            assert "may or may not" in got.cause
            await world.locate(term=2)
            try:
                located.appender.tell(None)  # type: ignore[arg-type]
            except StaleTerm:
                pass
            later = refusal(await append(located, (message("x"),), deadline_s=30))
            assert later.code is StreamingCode.ON_SHUTDOWN
            assert "nothing was stored" in later.cause

    run_seeded(4, scenario)


def test_a_batch_without_room_in_any_group_is_refused_whole() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            tiny = message("")
            got = refusal(await world.append(*((tiny,) * (BATCH_MESSAGES_MAX + 1))))
            assert got.code is StreamingCode.UNRECOVERABLE
            appended(await world.append(*((tiny,) * BATCH_MESSAGES_MAX)))
            assert await world.append() == ()

    run_seeded(5, scenario)


def test_batches_that_wait_together_share_one_write() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with running_node(gate.wal, NodeLimits(group_bytes_max=1_000)) as world:
            await world.assign()
            located = await world.locate()
            gate.open.clear()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(21):
                    tasks.create_task(append(located, (message("x" * 100),), deadline_s=30))
                await world.clock.sleep(0.1)
                gate.open.set()
            (figures,) = [
                each.extra
                for each in world.system.statistics()
                if each.path == world.path("appender")
            ]
            assert figures["groups"] in (3, 4)  # the first one alone, then 1,000 bytes at a time
            assert figures["state"] == "serving"

    run_seeded(6, scenario)


def test_bytes_of_a_caller_that_left_count_until_the_appender_is_done_with_them() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with running_node(gate.wal, NodeLimits(backlog_bytes_max=1_000)) as world:
            await world.assign()
            located = await world.locate()
            gate.open.clear()
            for code in (StreamingCode.UNKNOWN, StreamingCode.UNKNOWN, StreamingCode.INNER):
                got = refusal(await append(located, (message("x" * 500),), deadline_s=0.5))
                assert got.code is code
            assert located.backlog.bytes_waiting == 1_000
            gate.open.set()
            await world.clock.sleep(0.1)
            assert located.backlog.bytes_waiting == 0
            appended(await world.append(message("x" * 1_000)))

    run_seeded(7, scenario)


def test_a_cancelled_append_counts_until_the_appender_is_done_with_it() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with running_node(gate.wal) as world:
            await world.assign()
            located = await world.locate()
            gate.open.clear()
            with anyio.move_on_after(0.1):
                await append(located, (message("x" * 10),), deadline_s=30)
            assert located.backlog.bytes_waiting == 10
            gate.open.set()
            await world.clock.sleep(0.1)
            assert located.backlog.bytes_waiting == 0

    run_seeded(8, scenario)


def test_a_full_backlog_of_a_dead_appender_blocks_no_later_append() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with running_node(gate.wal, NodeLimits(backlog_bytes_max=1_000)) as world:
            await world.assign()
            located = await world.locate()
            gate.open.clear()
            for _ in range(2):
                refusal(await append(located, (message("x" * 500),), deadline_s=0.5))
            world.system.kill(world.path("appender"))
            gate.open.set()
            await world.locate(term=2)
            got = refusal(await append(located, (message("x" * 500),), deadline_s=30))
            assert got.code is StreamingCode.ON_SHUTDOWN
            assert "locate the channel again" in got.cause

    run_seeded(9, scenario)


def test_append_then_gives_the_same_outcomes_as_append() -> None:
    async def scenario() -> None:
        gate = Gate()
        limits = NodeLimits(backlog_bytes_max=1_000, backlog_batches_max=2)
        async with running_node(gate.wal, limits) as world:
            await world.assign()
            located = await world.locate()
            got: list[tuple[RunOutcome, ...]] = []
            append_then(located, (message("x"),) * 2, got.append, deadline_s=30)
            await world.clock.sleep(0.1)
            assert [type(it) for it in got.pop()] == [Appended, Appended]
            gate.open.clear()
            append_then(located, (message("x" * 400),), got.append, deadline_s=0.5)
            await world.clock.sleep(0.01)
            append_then(located, (message("y" * 900),), got.append, deadline_s=30)
            assert refusal(got.pop()).code is StreamingCode.INNER
            for _ in range(3):
                append_then(located, (message("z"),), got.append, deadline_s=0.5)
            full = refusal(got.pop())
            assert (full.code, "retry later" in full.cause) == (StreamingCode.INNER, True)
            await world.clock.sleep(1)
            assert {refusal(it).code for it in got} == {StreamingCode.UNKNOWN}
            assert len(got) == 3
            gate.open.set()
            await world.clock.sleep(0.1)
            assert located.backlog.bytes_waiting == 0

    run_seeded(7, scenario)


def test_an_acknowledged_append_is_readable_at_the_callers_next_turn() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal()) as world:
            await world.assign()
            located = await world.locate()
            channel = world.node.open_channels.find(PCHANNEL)
            assert channel is not None
            loop = asyncio.get_running_loop()
            seen: list[tuple[int, int]] = []

            def answered(outcomes: tuple[RunOutcome, ...]) -> None:
                (last,) = outcomes
                assert isinstance(last, Appended)
                loop.call_soon(lambda: seen.append((last.id, channel.tail.next_id)))

            for together in (1, 3):
                for _ in range(together):
                    append_then(located, (message("x"),), answered, deadline_s=30)
                await world.clock.sleep(0.1)
            assert len(seen) == 4
            assert all(last_id < next_id for last_id, next_id in seen)

    run_seeded(11, scenario)
