"""The newest message of a vchannel below an id, against a look at every record."""

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.testing import run_seeded
from broker.core.space.purged_messages import is_message
from broker.model.ids import MessageId, PChannelName, Term, TimeTick, TxnId
from broker.model.message import AppendedInTxn, MessageType
from broker.model.retention.dead import Contents
from broker.model.retention.policy import SealedSegment
from broker.model.txn import TxnContext
from broker.node.space import newest_message
from broker.node.space.newest_message import newest_tick
from broker.node.state.open_channels import OpenChannel
from broker.wal.memory_wal import MemoryLog, MemoryWal
from tests.broker.node.space.test_held_space import LIMITS
from tests.broker.node.space.test_purging import MINE
from tests.broker.node.space.test_reclamation import BODY
from tests.broker.node.world import World, message, running_node

SMALL = 16 << 10


async def naive(channel: OpenChannel, from_id: int, until_id: int) -> int:
    newest, at = 0, channel.log.bounds().first_id
    while heads := await channel.heads(at):
        for it in heads:
            if it.next_id > from_id and it.base_id < until_id and is_message(it, MINE):
                newest = it.last_tick
        at = heads[-1].next_id
    return newest


async def in_transaction(world: World, end: MessageType) -> None:
    begin = message(kind=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10**6))
    (begun,) = await world.append(begin)
    assert isinstance(begun, AppendedInTxn)
    await world.append(message("in it", txn=begun.txn))
    await world.append(message(kind=end, txn=begun.txn))


async def carry_out(world: World, steps: list[str]) -> None:
    for step in steps:
        match step:
            case "mine":
                await world.append(message("mine"))
            case "others":
                await world.append(*[message(BODY, shard=1)] * 3)
            case "commit":
                await in_transaction(world, MessageType.COMMIT_TXN)
            case _:
                await in_transaction(world, MessageType.ROLLBACK_TXN)
    await world.clock.sleep(1)


STEPS = st.lists(st.sampled_from(["mine", "others", "others", "commit", "rollback"]), max_size=12)


@settings(deadline=None)  # each case runs a node
@given(STEPS, st.integers(0, 40), st.integers(0, 40))
def test_it_is_the_newest_of_every_range(steps: list[str], start: int, ids: int) -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SMALL), LIMITS) as world:
            await world.assign()
            await carry_out(world, steps)
            (channel,) = world.node.open_channels.all()
            from_id = channel.log.bounds().first_id + start
            found = await newest_tick(channel, MINE, MessageId(from_id), MessageId(from_id + ids))
            assert found == await naive(channel, from_id, from_id + ids)

    run_seeded(1, scenario)


def test_it_gives_up_when_there_is_too_much_to_look_at() -> None:
    async def scenario() -> None:
        async with running_node(MemoryWal(segment_bytes=SMALL), LIMITS) as world:
            await world.assign()
            await carry_out(world, ["rollback", "others"] * 5 * newest_message.LOOKS_MAX)
            (channel,) = world.node.open_channels.all()
            end = channel.tail.next_id
            found = await newest_tick(channel, MINE, MessageId(0), end)
            assert found is None
            await carry_out(world, ["mine", "others"])
            newer = await newest_tick(channel, MINE, MessageId(0), channel.tail.next_id)
            assert newer == await naive(channel, 0, channel.tail.next_id) > TimeTick(0)

    run_seeded(2, scenario)


class SealsOnRead(MemoryLog):
    """While one of its sealed segments is read, the active one becomes full, once."""

    armed = False

    async def contents(self, segment: SealedSegment | None) -> Contents:
        if segment is not None and SealsOnRead.armed:
            SealsOnRead.armed = False
            self._stored.seal()
        return await super().contents(segment)


class SealsOnReadWal(MemoryWal):
    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        opened = await super().open(channel, term)
        opened.__class__ = SealsOnRead
        return opened


def test_it_is_found_also_when_its_segment_is_sealed_during_the_search() -> None:
    async def scenario() -> None:
        async with running_node(SealsOnReadWal(segment_bytes=SMALL), LIMITS) as world:
            await world.assign()
            await carry_out(world, ["mine", "others", "others", "mine"])
            (channel,) = world.node.open_channels.all()
            assert channel.log.segments(), "there is one to be read first"
            SealsOnRead.armed = True
            end = channel.tail.next_id
            found = await newest_tick(channel, MINE, MessageId(0), end)
            assert not SealsOnRead.armed
            assert found == await naive(channel, 0, end)

    run_seeded(3, scenario)


class SealedByItsThread(MemoryLog):
    """Once `armed`, it is sealed before what its active segment holds is read."""

    armed = False

    async def contents(self, segment: SealedSegment | None) -> Contents:
        if segment is None and SealedByItsThread.armed:
            SealedByItsThread.armed = False
            self._stored.seal()
        return await super().contents(segment)


class SealingWal(MemoryWal):
    async def open(self, channel: PChannelName, term: Term) -> MemoryLog:
        log = await super().open(channel, term)
        log.__class__ = SealedByItsThread
        return log


def test_a_segment_that_is_sealed_just_before_the_active_one_is_read_is_not_left_out() -> None:
    async def scenario() -> None:
        async with running_node(SealingWal(segment_bytes=1 << 20), LIMITS) as world:
            await world.assign()
            await carry_out(world, ["mine", "mine"])
            (channel,) = world.node.open_channels.all()
            end = channel.tail.next_id
            SealedByItsThread.armed = True
            found = await newest_tick(channel, MINE, MessageId(0), end)
            assert not SealedByItsThread.armed
            assert found == await naive(channel, 0, end) > 0

    run_seeded(3, scenario)
