"""Segments are rewritten one by one: what readers, a new owner and a measure make of the rest."""

from collections.abc import Sequence

from actors.testing import run_seeded
from broker.codec.stored_headers import StoredHeaders
from broker.core.time.span_count import SpanLimit
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.channel import AccessMode, PChannel
from broker.model.failure import Refusal
from broker.model.ids import MessageId, PChannelName, Term, TimeTick, TxnId
from broker.model.message import Appended, AppendedInTxn, MessageType
from broker.model.position import ReadPosition
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.model.retention.purge import Purge
from broker.model.txn import TxnContext
from broker.node.directory_messages import AssignChannel, Located
from broker.node.queries.measure_channels import Question, measure_channels
from broker.node.scanner_messages import Delivery, Pull
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.space.test_held_space import LIMITS
from tests.broker.node.space.test_purging import MINE, land, purge, read
from tests.broker.node.space.test_reclamation import BODY, SEGMENT_BYTES
from tests.broker.node.world import PCHANNEL, Reader, World, message, running_node


async def purge_a_transaction_across_segments(world: World) -> TxnContext:
    """Its begin lies in a segment that is not worth rewriting, its commit in one that is."""
    for _ in range(12):
        await world.append(message(BODY, shard=1))
    begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
    (begun,) = await world.append(begin)
    assert isinstance(begun, AppendedInTxn)
    await world.append(message("inside", txn=begun.txn))
    for shard in (1,) * 6 + (0,) * 10:
        await world.append(message(BODY, shard=shard))
    await world.append(message(kind=MessageType.COMMIT_TXN, txn=begun.txn))
    for _ in range(10):
        await world.append(message(BODY))
    (last,) = await world.append(message(BODY))
    assert isinstance(last, Appended)
    await world.clock.sleep(2)
    for _ in range(40):
        await world.append(message(BODY, shard=1))
    await world.append(message("behind"))
    await world.clock.sleep(3)
    assert isinstance(await purge(world, last.tick), Purge)
    await world.clock.sleep(20)
    return begun.txn


def test_a_reader_at_the_end_needs_nothing_of_a_transaction_that_was_purged_in_part() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            txn = await purge_a_transaction_across_segments(world)
            (channel,) = world.node.open_channels.all()
            left = await channel.log.read(MessageId(1), 1 << 24)
            kinds = [it.kind for it in left if it.txn is not None and it.txn.id == txn.id]
            assert kinds[0] == MessageType.BEGIN_TXN, "its segment is as it was"
            reader = Reader(world, MINE)
            reader.cursor = ReadPosition(channel.purges.purges[MINE].next_id)
            await reader.read_until((await world.offsets()).next_id - 1)
            assert [it.body for it in reader.messages] == [b"behind"]
            assert reader.cursor.open_id == reader.cursor.next_id, "it holds nothing"
            first = channel.log.segments()[0].next_id
            await channel.log.truncate(first, Retention(bytes_max=1), world.clock.wall_ms())
            again = await world.open_scanner(MINE)
            assert not isinstance(again, Refusal)
            answer = await again.scanner.ask(Pull(reader.cursor, 1 << 20), deadline_s=10.0)
            assert isinstance(answer, Delivery), answer

    run_seeded(1, scenario)


def test_a_new_owner_finds_no_transaction_open_that_was_purged_in_part() -> None:
    async def scenario() -> None:
        wal, recovery = MemoryWal(segment_bytes=SEGMENT_BYTES), StoredRecovery(MemoryMetaStore())
        async with running_node(wal, LIMITS, recovery=recovery) as world:
            await world.assign()
            txn = await purge_a_transaction_across_segments(world)
        for term, saved in ((5, recovery), (9, StoredRecovery(MemoryMetaStore()))):
            # From the snapshot, and from the log alone.
            async with running_node(wal, LIMITS, recovery=saved) as world:
                await world.assign(term=term)
                await world.locate()
                (channel,) = world.node.open_channels.all()
                assert channel.transactions.open_count == 0
                await world.append(message(kind=MessageType.COMMIT_TXN, txn=txn))
                await world.clock.sleep(1)
                assert await read(world, MINE) == [b"behind"], "it was purged"

    run_seeded(1, scenario)


def test_a_measure_counts_what_readers_get_before_anything_is_given_back() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            landed = await land(world, "one", "two", "three")
            assert isinstance(await purge(world, landed[1].tick), Purge)
            place = await world.locate()

            async def locate(_name: str) -> Located:
                return place

            question = Question(
                channels=(MINE,),
                afters=(TimeTick(0),),
                until=place.view.offsets().closed_tick,
                enough=SpanLimit(),
                step=(0, 0),
                together=(),
            )
            answer = await measure_channels(locate, StoredHeaders(), question)
            (step,) = answer.channels[MINE].steps
            assert (step.rows, step.bytes) == (1, len(b"three"))
            assert await read(world, MINE) == [b"three"]

    run_seeded(1, scenario)


class EndsInGap(MemoryLog):
    """A restored log: the space of its newest records was given back."""

    left = MessageId(0)

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        found = await super().read(from_id, bytes_max)
        return [it for it in found if it.next_id <= EndsInGap.left]


class RestoredWal(MemoryWal):
    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        opened = await super().open(channel, term)
        if EndsInGap.left:
            opened.__class__ = EndsInGap
        return opened


def test_a_reader_of_a_log_that_ends_where_space_was_given_back_learns_how_far_it_is_closed() -> (
    None
):
    """Nobody may write to it, so that no record follows; else `until="now"` would wait for ever."""

    async def scenario() -> None:
        EndsInGap.left = MessageId(0)
        wal = RestoredWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS) as world:
            await world.assign()
            kept, *_ = await land(world, "kept", "gone", "gone")
        EndsInGap.left = MessageId(kept.id + 1)
        async with running_node(wal, LIMITS) as world:
            channel = PChannel(PCHANNEL, Term(5), AccessMode.READ_ONLY)
            assert await world.ask(AssignChannel(channel)) is None
            place = await world.locate()
            closed = place.view.offsets().closed_tick
            reader = Reader(world, MINE)
            for _ in range(20):
                assert isinstance(await reader.pull(), Delivery)
            assert [it.body for it in reader.messages] == [b"kept"]
            assert reader.ticks[-1].tick == closed
            assert reader.cursor.next_id == place.view.offsets().next_id

    run_seeded(1, scenario)
    EndsInGap.left = MessageId(0)


def test_a_reader_inside_of_a_transaction_leaves_it_where_a_restored_log_ends() -> None:
    """Else it would skip as many messages of the next transaction."""

    async def scenario() -> None:
        EndsInGap.left = MessageId(0)
        wal = RestoredWal(segment_bytes=SEGMENT_BYTES)
        async with running_node(wal, LIMITS) as world:
            await world.assign()
            kept, *_ = await land(world, "kept")
            begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            await world.append(message("gone", txn=begun.txn))
            commit = message(kind=MessageType.COMMIT_TXN, txn=begun.txn)
            (committed,) = await world.append(commit)
            assert isinstance(committed, AppendedInTxn)
            await world.clock.sleep(1)
        EndsInGap.left = MessageId(kept.id + 1)
        async with running_node(wal, LIMITS) as world:
            channel = PChannel(PCHANNEL, Term(5), AccessMode.READ_ONLY)
            assert await world.ask(AssignChannel(channel)) is None
            end = (await world.locate()).view.offsets().next_id
            reader = Reader(world, MINE)
            reader.cursor = ReadPosition(committed.id, kept.tick, committed.id, inside=2)
            while reader.cursor.next_id < end:
                assert isinstance(await reader.pull(), Delivery)
            assert reader.cursor.inside == 0

    run_seeded(1, scenario)
    EndsInGap.left = MessageId(0)
