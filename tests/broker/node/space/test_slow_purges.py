"""A purge on a slow disk: while a commit is being stored, and when its own record comes late."""

from collections.abc import Callable, Sequence

import anyio

from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, Term, TxnId
from broker.model.message import AppendedInTxn, MessageType
from broker.model.record import Record
from broker.model.retention.purge import Purge
from broker.model.txn import TxnContext
from broker.node.scanner_messages import Delivery
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.space.test_held_space import LIMITS
from tests.broker.node.space.test_purging import MINE, land, purge, read
from tests.broker.node.space.test_reclamation import SEGMENT_BYTES, fill
from tests.broker.node.world import Reader, message, running_node


class SlowLog(MemoryLog):
    """Its writes wait for `wal.ready`, as on a disk that is slow."""

    wal: "SlowDisk"

    async def append(
        self, records: Sequence[Record], when_written: Callable[[], None] | None = None
    ) -> None:
        await self.wal.ready.wait()
        await super().append(records, when_written)


class SlowDisk(MemoryWal):
    ready: anyio.Event

    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        log = await super().open(channel, term)
        log.__class__ = SlowLog
        assert isinstance(log, SlowLog)
        log.wal = self
        return log


def test_a_transaction_whose_commit_is_being_stored_refuses_the_purge() -> None:
    async def scenario() -> None:
        wal = SlowDisk(segment_bytes=SEGMENT_BYTES)
        wal.ready = anyio.Event()
        wal.ready.set()
        async with running_node(wal, LIMITS) as world:
            await world.assign()
            begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            await world.append(message("inside", txn=begun.txn))
            await world.clock.sleep(0.5)
            closed = (await world.offsets()).closed_tick
            wal.ready = anyio.Event()
            answers: list[Purge | Refusal] = []

            async def ask() -> None:
                answers.append(await purge(world, closed))

            async with anyio.create_task_group() as tasks:
                commit = message(kind=MessageType.COMMIT_TXN, txn=begun.txn)
                tasks.start_soon(world.append, commit)
                await world.clock.sleep(0.5)
                tasks.start_soon(ask)
                await world.clock.sleep(0.5)
                wal.ready.set()
            (refusal,) = answers
            assert isinstance(refusal, Refusal), "the messages are of the tick of the commit"
            assert refusal.code is StreamingCode.RESOURCE_ACQUIRED
            assert isinstance(await purge(world, closed), Purge)
            await fill(world)
            await world.clock.sleep(40)
            assert b"inside" in await read(world, MINE)

    run_seeded(13, scenario)


def test_a_purge_that_is_stored_late_counts_from_then_on() -> None:
    async def scenario() -> None:
        wal = SlowDisk(segment_bytes=SEGMENT_BYTES)
        wal.ready = anyio.Event()
        wal.ready.set()
        async with running_node(wal, LIMITS) as world:
            await world.assign()
            await land(world, "one")
            closed = (await world.offsets()).closed_tick
            wal.ready = anyio.Event()
            refusal = await purge(world, closed)
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.UNKNOWN
            assert await read(world, MINE) == [b"one"]
            wal.ready.set()
            await world.clock.sleep(1)
            assert await read(world, MINE) == [], "as after a restart"
            done = await purge(world, closed)
            assert isinstance(done, Purge)
            assert done.tick > closed

    run_seeded(14, scenario)


def test_a_read_of_all_that_begins_while_a_purge_is_stored_begins_behind_it() -> None:
    async def scenario() -> None:
        wal = SlowDisk(segment_bytes=SEGMENT_BYTES)
        wal.ready = anyio.Event()
        wal.ready.set()
        async with running_node(wal, LIMITS) as world:
            await world.assign()
            _, second, _ = await land(world, "one", "two", "three")
            wal.ready = anyio.Event()
            reader = Reader(world, MINE)
            opened = await world.open_scanner(MINE)
            assert not isinstance(opened, Refusal)
            reader.cursor = opened.cursor
            answers: list[Purge | Refusal] = []

            async def ask() -> None:
                answers.append(await purge(world, second.tick))

            async def take() -> None:
                while not reader.messages:
                    assert isinstance(await reader.pull(1), Delivery)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await world.clock.sleep(0.5)
                tasks.start_soon(take)
                await world.clock.sleep(0.5)
                assert not reader.messages, "whether there is a first one is being decided"
                wal.ready.set()
            assert [it.body for it in reader.messages] == [b"three"]
            assert isinstance(answers[0], Purge)

    run_seeded(15, scenario)
