"""A purge that becomes durable while a reader waits for a read of the log: the reader is told."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.record import Record
from broker.model.retention.holders import Hold
from broker.model.retention.policy import LogStart
from broker.model.retention.purge import Purge
from broker.node.scanner_messages import Delivery
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.space.test_held_space import LIMITS, HoldsOf
from tests.broker.node.space.test_purging import MINE, land, purge
from tests.broker.node.space.test_readers_of_purged import end_scanner, take, texts
from tests.broker.node.space.test_reclamation import SEGMENT_BYTES, fill
from tests.broker.node.world import Reader, World, running_node


class SlowReadLog(MemoryLog):
    """The next read is answered at `wal.ready`, once `wal.armed`."""

    wal: "SlowReads"

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        armed, self.wal.armed = self.wal.armed, False
        found = await super().read(from_id, bytes_max)
        if armed:
            self.wal.waits = True
            await self.wal.ready.wait()
        return found


class SlowReads(MemoryWal):
    armed = waits = False

    def __init__(self) -> None:
        super().__init__(segment_bytes=SEGMENT_BYTES)
        self.ready = anyio.Event()

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        log = await super().open(channel, term)
        log.__class__ = SlowReadLog
        assert isinstance(log, SlowReadLog)
        log.wal = self
        return log


class SlowHolds(HoldsOf):
    """The coordinator takes a second to say who holds anything, once `world` is known."""

    world: World | None = None

    async def of(
        self, starts: Mapping[PChannelName, LogStart]
    ) -> Mapping[PChannelName, Sequence[Hold]]:
        if self.world is not None:
            await self.world.clock.sleep(1.0)
        return await super().of(starts)


async def reader_of_one(world: World) -> Reader:
    """It has one message; more are to come."""
    await world.assign()
    await land(world, "one")
    reader = Reader(world, MINE)
    await take(reader, 1)
    return reader


async def answer_of(reader: Reader) -> Delivery | Refusal:
    """The refusal, or its first delivery of messages."""
    before = len(reader.messages)
    while True:
        answer = await reader.pull()
        if isinstance(answer, Refusal) or len(reader.messages) > before:
            return answer


def test_a_reader_that_is_passed_while_it_reads_is_told() -> None:
    async def scenario() -> None:
        wal = SlowReads()
        passed_early = replace(LIMITS, hold_bytes_max=SEGMENT_BYTES)
        async with running_node(wal, passed_early) as world:
            reader = await reader_of_one(world)
            await fill(world, 10)
            (last,) = await land(world, "the last below")
            await fill(world, 100)
            wal.armed = True
            async with anyio.create_task_group() as tasks:
                answers = pulled(tasks, reader)
                await world.clock.sleep(0.5)
                assert wal.waits
                assert isinstance(await purge(world, last.tick), Purge)
                wal.ready.set()
            is_told(answers, reader)

    run_seeded(1, scenario)


def test_a_reader_that_comes_back_while_a_purge_is_decided_is_told() -> None:
    async def scenario() -> None:
        wal, holds = SlowReads(), SlowHolds()
        async with running_node(wal, LIMITS, holds=holds) as world:
            reader = await reader_of_one(world)
            await end_scanner(world, reader)
            await fill(world, 10)
            (last,) = await land(world, "the last below")
            await fill(world, 100)
            holds.world = world

            async def purge_it() -> None:
                assert isinstance(await purge(world, last.tick), Purge)
                wal.ready.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(purge_it)
                await world.clock.sleep(0.5)
                wal.armed = True
                answers = pulled(tasks, reader)
                await world.clock.sleep(0.1)
                assert wal.waits
            is_told(answers, reader)

    run_seeded(2, scenario)


def test_a_reader_that_is_passed_while_an_earlier_purge_is_checked_is_told() -> None:
    async def scenario() -> None:
        wal = SlowReads()
        passed_early = replace(LIMITS, hold_bytes_max=SEGMENT_BYTES)
        async with running_node(wal, passed_early) as world:
            reader = await reader_of_one(world)
            for _ in range(10):
                (neighbour,) = await land(world, "of others", shard=1)
            assert isinstance(await purge(world, neighbour.tick), Purge)
            await fill(world, 10)
            (last,) = await land(world, "the last below")
            await fill(world, 100)
            # As one that was not given the message of an earlier tick: whether it misses anything
            # is to be looked up.
            reader.cursor = replace(reader.cursor, tick=TimeTick(reader.messages[0].tick - 1))
            wal.armed = True
            async with anyio.create_task_group() as tasks:
                answers = pulled(tasks, reader)
                await world.clock.sleep(0.5)
                assert wal.waits
                assert isinstance(await purge(world, last.tick), Purge)
                wal.ready.set()
            is_told(answers, reader)

    run_seeded(3, scenario)


def test_a_reader_that_has_everything_reads_on_through_a_purge() -> None:
    async def scenario() -> None:
        wal = SlowReads()
        async with running_node(wal, LIMITS) as world:
            reader = await reader_of_one(world)
            for _ in range(10):
                (neighbour,) = await land(world, "of others", shard=1)
            await fill(world, 100)
            wal.armed = True
            async with anyio.create_task_group() as tasks:
                answers = pulled(tasks, reader)
                await world.clock.sleep(0.5)
                assert wal.waits
                assert isinstance(await purge(world, neighbour.tick), Purge)
                wal.ready.set()
            assert isinstance(answers[0], Delivery)
            await take(reader, 81)

    run_seeded(4, scenario)


def pulled(tasks: TaskGroup, reader: Reader) -> list[Delivery | Refusal]:
    """Where the answer to a pull that begins now will be."""
    answers: list[Delivery | Refusal] = []

    async def pull() -> None:
        answers.append(await answer_of(reader))

    tasks.start_soon(pull)
    return answers


def is_told(answers: list[Delivery | Refusal], reader: Reader) -> None:
    (answer,) = answers
    assert isinstance(answer, Refusal), texts(reader)[1:2]
    assert answer.code is StreamingCode.UNRECOVERABLE
