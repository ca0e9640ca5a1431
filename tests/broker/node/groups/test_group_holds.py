"""What a group has not acknowledged holds back retention, within the limit of holders."""

from dataclasses import replace

import pytest

from actors.testing import run_seeded
from broker.core.groups.furthest_groups import FURTHEST_MAX
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import GroupKey, GroupView
from broker.model.ids import MessageId, TimeTick, TxnId
from broker.model.message import GROUP_CHANGE, AppendedInTxn, MessageType, NewMessage
from broker.model.record import Record
from broker.model.retention.holders import HolderKind
from broker.model.retention.purge import Purge
from broker.model.txn import TxnContext
from broker.node.group_messages import CreateGroup, JoinGroup, OpenGroup, TakeMessages
from broker.node.groups.lag_watch import LOOK_S
from broker.node.space.purging import PurgeVChannel
from broker.node.state.channel_groups import ChannelGroups
from broker.ports.wal import Log
from tests.broker.node.groups.test_group_leases import KEY, bodies, create, join, keeper, shown
from tests.broker.node.test_truncation import (
    KEPT_BYTES,
    LIMITS,
    SEGMENT_BYTES,
    HoldsFake,
    fill,
    retaining,
)
from tests.broker.node.world import PCHANNEL, World, appended


def test_a_group_holds_what_it_has_not_acknowledged_and_lets_go_of_it() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        async with retaining(holds, replace(LIMITS, hold_bytes_max=1 << 30)) as world:
            await world.assign()
            await create(world)
            await fill(world)
            assert (await world.offsets()).first_id == 1
            (holding,) = holds.removals[-1].holders
            assert (holding.kind, holding.name) == (
                HolderKind.GROUP,
                f"{KEY.name} on {KEY.vchannel}",
            )
            ann = await join(world)
            lease = await ann.take()
            while lease.lease:
                assert await ann.ack(lease.lease) is None
                lease = await ann.take()
            await world.clock.sleep(5)
            assert (await world.offsets()).first_id > 30

    run_seeded(1, scenario)


def test_a_group_without_messages_holds_nothing_back_of_the_log_it_shares() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        async with retaining(holds, replace(LIMITS, hold_bytes_max=1 << 30)) as world:
            await world.assign()
            door = await keeper(world)
            quiet = GroupKey(f"{PCHANNEL}_8v0", "quiet")
            for key in (KEY, quiet):
                request = CreateGroup(key, 1000, TimeTick(0), exist_ok=False)
                assert isinstance(await door.ask(request, deadline_s=60), GroupView)
            before = opened_groups(world).view(quiet).seen
            await fill(world)
            await world.clock.sleep(3 * LOOK_S)
            opened = world.node.open_channels.find(PCHANNEL)
            assert opened is not None
            groups = opened.groups.table.groups
            assert groups[KEY].floor == 0, "its messages are not acknowledged"
            written = groups[quiet].floor
            assert written >= opened.log.segments()[-1].last_tick
            assert groups[quiet].tick > before
            assert opened_groups(world).view(quiet).seen == before, "nobody was there"
            # Once for each segment: it is in the newest one now.
            next_id = opened.tail.next_id
            await world.clock.sleep(20 * LOOK_S)
            kinds = [it.kind for it in await records_from(opened.log, next_id, opened.tail.next_id)]
            assert GROUP_CHANGE not in kinds
            # What comes for it later comes to it.
            appended(await world.append(NewMessage(quiet.vchannel, 2, b"late", 4)))
            group = await door.ask(OpenGroup(quiet), deadline_s=60)
            assert not isinstance(group, Refusal | None)
            joined = await group.ask(JoinGroup("ann"), deadline_s=60)
            take = TakeMessages(joined.member, 1000)
            assert bodies(await group.ask(take, deadline_s=60)) == ["late"]
            await world.clock.sleep(3 * LOOK_S)
            assert groups[quiet].floor == written
            assert (await world.offsets()).first_id == 1, "the other one holds it"

    run_seeded(1, scenario)


@pytest.mark.parametrize("last", ["a message", "a purge", "a rollback"])
def test_a_group_with_nothing_left_holds_nothing_whatever_lies_behind_its_messages(
    last: str,
) -> None:
    async def scenario() -> None:
        async with retaining(HoldsFake(), replace(LIMITS, hold_bytes_max=1 << 30)) as world:
            await world.assign()
            quiet = GroupKey(f"{PCHANNEL}_8v0", "quiet")
            message = NewMessage(quiet.vchannel, MessageType.INSERT, b"old", 3)
            (landed,) = appended(await world.append(message))
            await world.clock.sleep(1)
            behind = CreateGroup(quiet, 1000, landed.tick, exist_ok=False)
            assert isinstance(await (await keeper(world)).ask(behind, deadline_s=60), GroupView)
            if last == "a purge":
                asked = PurgeVChannel(quiet.vchannel, landed.tick)
                purging = world.system.find("/root/node/purging")
                assert isinstance(await purging.ask(asked, deadline_s=60), Purge)
            elif last == "a rollback":
                begin = replace(
                    message, type=MessageType.BEGIN_TXN, txn=TxnContext(TxnId(0), 10_000)
                )
                (begun,) = await world.append(begin)
                assert isinstance(begun, AppendedInTxn)
                for kind in (MessageType.INSERT, MessageType.ROLLBACK_TXN):
                    await world.append(replace(message, type=kind, txn=begun.txn))
            await fill(world)
            await world.clock.sleep(3 * LOOK_S)
            assert opened_groups(world).table.groups[quiet].floor > landed.tick
            assert (await world.offsets()).first_id > landed.id

    run_seeded(1, scenario)


def test_a_message_of_all_vchannels_comes_to_a_group_that_is_idle_otherwise() -> None:
    async def scenario() -> None:
        async with retaining(HoldsFake(), replace(LIMITS, hold_bytes_max=1 << 30)) as world:
            await world.assign()
            door = await keeper(world)
            quiet = GroupKey(f"{PCHANNEL}_8v0", "quiet")
            request = CreateGroup(quiet, 1000, TimeTick(0), exist_ok=False)
            assert isinstance(await door.ask(request, deadline_s=60), GroupView)
            appended(await world.append(NewMessage("", MessageType.FLUSH_ALL, b"all", 3)))
            await fill(world)
            await world.clock.sleep(3 * LOOK_S)
            group = await door.ask(OpenGroup(quiet), deadline_s=60)
            assert not isinstance(group, Refusal | None)
            joined = await group.ask(JoinGroup("ann"), deadline_s=60)
            assert bodies(await group.ask(TakeMessages(joined.member, 1000), deadline_s=60)) == [
                "all"
            ]

    run_seeded(1, scenario)


def opened_groups(world: World) -> ChannelGroups:
    opened = world.node.open_channels.find(PCHANNEL)
    assert opened is not None
    return opened.groups


async def records_from(log: Log, next_id: MessageId, end: MessageId) -> list[Record]:
    found: list[Record] = []
    while next_id < end:
        found += await log.read(next_id, 1 << 20)
        next_id = found[-1].next_id
    return found


def test_a_group_that_is_passed_goes_on_at_the_first_message_left() -> None:
    async def scenario() -> None:
        holds = HoldsFake()
        async with retaining(holds) as world:
            await world.assign()
            await create(world)
            ann = await join(world)
            await fill(world, 4)
            kept = await ann.take(1)
            assert bodies(kept)
            await fill(world)
            first_id = (await world.offsets()).first_id
            assert first_id > 10
            assert HolderKind.GROUP in {it.kind for each in holds.removals for it in each.passed}
            # What it has on lease is gone from the log: when that ends, it is settled.
            await world.clock.sleep(40)
            found = 0
            lease = await ann.take()
            while lease.lease:
                found += len(bodies(lease))
                assert await ann.ack(lease.lease) is None
                lease = await ann.take()
            assert 0 < found < 30
            view = await shown(world)
            assert view.group.acked == ()
            assert view.group.floor > kept.span.upto

    run_seeded(1, scenario)


def test_groups_that_were_passed_do_not_hide_one_that_still_needs_the_log() -> None:
    async def scenario() -> None:
        async with retaining(HoldsFake()) as world:
            await world.assign()
            door = await keeper(world)
            for number in range(FURTHEST_MAX + 1):
                lost = GroupKey(KEY.vchannel, f"lost{number}")
                request = CreateGroup(lost, 1000, TimeTick(0), exist_ok=False)
                assert isinstance(await door.ask(request, deadline_s=60), GroupView)
            await fill(world, 40)
            near = await world.offsets()
            request = CreateGroup(KEY, 1000, near.closed_tick, exist_ok=False)
            assert isinstance(await door.ask(request, deadline_s=60), GroupView)
            await fill(world, 12)
            after = await world.offsets()
            assert after.size_bytes > KEPT_BYTES + SEGMENT_BYTES, "retention alone keeps less"
            assert after.first_id <= near.next_id

    run_seeded(1, scenario)
