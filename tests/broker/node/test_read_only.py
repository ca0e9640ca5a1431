"""A channel that is assigned read-only: readers are served, and nothing is ever written."""

import pytest

from actors.testing import run_seeded
from broker.model.channel import AccessMode, PChannel
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import Term, TimeTick
from broker.node.appender_messages import CloseTick
from broker.node.directory_messages import AssignChannel, CollectStatus, Locate, NodeStatus
from broker.wal.memory_wal import MemoryWal
from tests.broker.node.world import PCHANNEL, Reader, World, appended, message, running_node


async def assign_read_only(world: World, term: int) -> object:
    channel = PChannel(PCHANNEL, Term(term), AccessMode.READ_ONLY)
    return await world.ask(AssignChannel(channel))


def texts(reader: Reader) -> list[bytes]:
    return [it.body for it in reader.messages]


@pytest.mark.parametrize("seed", range(3))
def test_readers_get_all_there_is_and_appends_are_refused_and_leave_no_trace(seed: int) -> None:
    async def scenario() -> None:
        async with running_node(seed=seed) as world:
            await world.assign(term=2)
            last = appended(await world.append(message("a"), message("b")))[-1]
            before = await world.offsets()
            assert await assign_read_only(world, 3) is None
            refused = await world.append(message("c"))
            assert [it.code for it in refused if isinstance(it, Refusal)] == [
                StreamingCode.INVALID_ARGUMENT
            ]
            writer = await world.ask(Locate(PCHANNEL, Term(3), writes=True))
            assert isinstance(writer, Refusal)
            assert writer.code is StreamingCode.INVALID_ARGUMENT
            assert "read-only" in writer.cause
            reader = Reader(world)
            await reader.read_until(last.id)
            assert texts(reader) == [b"a", b"b"]
            await world.clock.sleep(5.0)
            now = await world.offsets()
            assert (now.next_id, now.term) == (before.next_id, 3)
            assert now.closed_tick <= before.closed_tick

    run_seeded(seed, scenario)


def test_its_status_says_read_only_and_no_tick_is_closed() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            assert await assign_read_only(world, 2) is None
            status = await world.ask(CollectStatus())
            assert isinstance(status, NodeStatus)
            assert [it.channel for it in status.channels] == [
                PChannel(PCHANNEL, Term(2), AccessMode.READ_ONLY)
            ]
            located = await world.locate()
            closed = await located.appender.ask(CloseTick(), deadline_s=5.0)
            assert isinstance(closed, Refusal)
            offsets = await world.offsets()
            assert (offsets.first_id, offsets.next_id) == (1, 1)
            assert offsets.closed_tick == TimeTick(0)

    run_seeded(1, scenario)


def test_a_writer_before_it_is_fenced_and_a_writer_after_it_continues() -> None:
    async def scenario() -> None:
        wal = MemoryWal()
        async with running_node(wal) as old:
            await old.assign(term=2)
            first = appended(await old.append(message("a")))[0]
            async with running_node(wal) as world:
                assert await assign_read_only(world, 3) is None
                (late,) = await old.append(message("late"))
                assert isinstance(late, Refusal)
                assert late.code is StreamingCode.CHANNEL_FENCED
                world.oracle.next = old.oracle.next
                assert await world.assign(term=4) is None
                second = appended(await world.append(message("b")))[0]
                assert second.tick > first.tick
                reader = Reader(world)
                await reader.read_until(second.id)
                assert texts(reader) == [b"a", b"b"]

    run_seeded(2, scenario)


def test_a_read_only_channel_whose_owner_dies_reopens_read_only() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            assert await assign_read_only(world, 2) is None
            world.system.kill(world.path("appender"))
            located = await world.locate(term=3)
            assert located.channel.access is AccessMode.READ_ONLY

    run_seeded(3, scenario)


def test_a_controller_that_dies_during_an_opening_still_opens_read_only() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign(term=2)
            asked = world.system.find("/root/node/directory")
            channel = PChannel(PCHANNEL, Term(3), AccessMode.READ_ONLY)
            asked.tell(AssignChannel(channel))
            # Once it closes the earlier term, it has the command; before, nobody would repeat it.
            while world.node.open_channels.find(PCHANNEL) is not None:
                await world.clock.sleep(0.0)
            world.system.kill(f"/root/node/channels/{PCHANNEL}/controller")
            found = (await world.locate()).channel
            # One more where the log had been opened when the controller died.
            assert found.term in (3, 4)
            assert found.access is AccessMode.READ_ONLY

    run_seeded(4, scenario)
