"""Readers and purges: who misses a message is told, who has everything reads on."""

from dataclasses import replace

from actors.testing import run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, Term, TxnId
from broker.model.message import AppendedInTxn, MessageType
from broker.model.retention.purge import Purge
from broker.model.txn import TxnContext
from broker.node.scanner_messages import CloseScanner, Delivery
from broker.node.space.purging import PurgeVChannel
from broker.wal.alter.placed_log import PlacedLog
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.space.test_held_space import LIMITS
from tests.broker.node.space.test_purging import MINE, OTHERS, land, purge
from tests.broker.node.space.test_reclamation import BODY, SEGMENT_BYTES, fill, size
from tests.broker.node.world import Reader, World, message, running_node


async def take(reader: Reader, count: int) -> None:
    while len(reader.messages) < count:
        assert isinstance(await reader.pull(1), Delivery)


async def end_scanner(world: World, reader: Reader) -> None:
    """As when nobody has pulled for long; the next pull opens another one."""
    assert reader._opened is not None
    reader._opened.scanner.tell(CloseScanner())
    await world.clock.sleep(1)
    (channel,) = world.node.open_channels.all()
    assert not channel.readers, "nobody holds anything"


def texts(reader: Reader) -> list[bytes]:
    return [it.body for it in reader.messages]


def test_a_reader_that_has_everything_reads_on_although_it_did_not_ask_for_long() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            await land(world, "one")
            reader = Reader(world, MINE)
            await take(reader, 1)
            await land(world, "of others", shard=1)
            begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
            (begun,) = await world.append(begin)
            assert isinstance(begun, AppendedInTxn)
            await world.append(message("rolled back", txn=begun.txn))
            await world.append(message(kind=MessageType.ROLLBACK_TXN, txn=begun.txn))
            (landed,) = await land(world, "of others", shard=1)
            await end_scanner(world, reader)
            assert isinstance(await purge(world, landed.tick), Purge)
            await land(world, "two")
            await take(reader, 2)
            assert texts(reader) == [b"one", b"two"]

    run_seeded(1, scenario)


def test_a_reader_of_all_that_lost_its_place_in_a_purge_is_told() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            first, second, _ = await land(world, "one", "two", "three")
            assert isinstance(await purge(world, first.tick), Purge)
            reader, later = Reader(world, MINE), Reader(world, MINE)
            reader.cursor = later.cursor = (await opened_at_all(world)).cursor
            await take(reader, 1)
            assert texts(reader) == [b"two"]
            await end_scanner(world, reader)
            *_, last = await land(world, "four", "five")
            assert isinstance(await purge(world, last.tick), Purge)
            await land(world, "six")
            answer = await reader.pull(1)
            assert isinstance(answer, Refusal), "three, four and five would be missing"
            assert answer.code is StreamingCode.UNRECOVERABLE
            # One that was given nothing yet takes whatever is left.
            await take(later, 1)
            assert texts(later) == [b"six"]
            assert second.tick < last.tick

    run_seeded(2, scenario)


async def opened_at_all(world: World):  # type: ignore[no-untyped-def]
    opened = await world.open_scanner(MINE)
    assert not isinstance(opened, Refusal)
    opened.scanner.tell(CloseScanner())
    await world.clock.sleep(1)
    return opened


def test_a_quiet_reader_goes_on_where_neighbours_and_earlier_purges_left_gaps() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            first, last = await land(world, "one", "two")
            reader, behind = Reader(world, MINE), Reader(world, MINE)
            await take(reader, 2)
            await end_scanner(world, reader)
            for _ in range(2):
                # Each record of a purge is of the vchannel, too, and goes with the next one.
                for _ in range(40):
                    (landed,) = await land(world, BODY, shard=1)
                assert isinstance(await purge(world, landed.tick), Purge)
                neighbours = PurgeVChannel(OTHERS, landed.tick)
                purging = world.system.find("/root/node/purging")
                assert isinstance(await purging.ask(neighbours, deadline_s=60.0), Purge)
                await world.clock.sleep(40)
            await land(world, "three")
            await take(reader, 3)
            assert texts(reader) == [b"one", b"two", b"three"]
            behind.cursor = replace(reader.cursor, tick=first.tick, next_id=last.id)
            answer = await behind.pull(1)
            assert isinstance(answer, Refusal), "two would be missing"

    run_seeded(4, scenario)


def test_behind_what_was_given_back_nobody_knows_so_the_reader_is_told() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SEGMENT_BYTES), LIMITS) as world:
            await world.assign()
            await land(world, "one")
            reader = Reader(world, MINE)
            await take(reader, 1)
            await end_scanner(world, reader)
            await fill(world)
            (landed,) = await land(world, "the last below")
            before = await size(world)
            assert isinstance(await purge(world, landed.tick), Purge)
            await land(world, "above")
            await world.clock.sleep(40)
            assert await size(world) < 0.4 * before
            answer = await reader.pull(1)
            assert isinstance(answer, Refusal)
            assert answer.code is StreamingCode.UNRECOVERABLE

    run_seeded(3, scenario)


class MovedWal:
    """A `Wal` over logs in memory, which are about to be moved away."""

    name = "rocksmq"

    def __init__(self) -> None:
        self._wal = MemoryWal(segment_bytes=SEGMENT_BYTES)
        self.logs: list[PlacedLog] = []

    async def open(self, channel: PChannelName, term: Term) -> PlacedLog:
        self.logs.append(PlacedLog(await self._wal.open(channel, term), "here"))
        return self.logs[-1]

    async def why_unwritable(self, channel: PChannelName) -> str:
        return ""

    def warnings(self) -> list[str]:
        return []


def test_a_reader_that_misses_a_message_is_told_also_while_the_log_is_moved() -> None:
    async def scenario() -> None:
        wal = MovedWal()
        async with running_node(wal, LIMITS) as world:
            await world.assign()
            await land(world, "one")
            reader, quiet = Reader(world, MINE), Reader(world, MINE)
            await take(reader, 1)
            await end_scanner(world, reader)
            (landed,) = await land(world, "two")
            await take(quiet, 2)
            await end_scanner(world, quiet)
            await wal.logs[0].hold()
            assert isinstance(await purge(world, landed.tick), Purge)
            wal.logs[0].release()
            (landed,) = await land(world, "three")
            answer = await reader.pull(1)
            assert isinstance(answer, Refusal), "two would be missing"
            await end_scanner(world, reader)
            await take(quiet, 3)
            assert texts(quiet) == [b"one", b"two", b"three"]
            await end_scanner(world, quiet)
            # What was seen of the log while it was held is not taken for all that it has.
            (last,) = await land(world, "four")
            assert isinstance(await purge(world, last.tick), Purge)
            answer = await quiet.pull(1)
            assert isinstance(answer, Refusal), "four would be missing"

    run_seeded(5, scenario)
