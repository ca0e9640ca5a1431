"""A group on a node: what is not acknowledged comes again, what is acknowledged never."""

from collections.abc import Sequence

import pytest

from actors.testing import run_seeded
from broker.core.groups.group_rules import LEASE_MS
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import GroupKey, GroupView, TickSpan
from broker.model.ids import TimeTick, TxnId
from broker.model.message import Delivered
from broker.model.txn import TxnContext
from broker.node.group_messages import (
    AckMessages,
    CreateGroup,
    DropGroup,
    ExtendLease,
    GroupJoined,
    JoinGroup,
    LeasedMessages,
    LeaveGroup,
    ListGroups,
    NackMessages,
    OpenGroup,
    SeekGroup,
    TakeMessages,
)
from broker.node.groups.group_leases import IDLE_S
from tests.broker.core.log.singly import each_of
from tests.broker.node.world import PCHANNEL, Reader, World, appended, message, running_node

VCHANNEL = f"{PCHANNEL}_7v0"
KEY = GroupKey(VCHANNEL, "workers")
MIB = 1 << 20
BEGIN = TxnContext(TxnId(0), 0)


async def keeper(world: World):  # type: ignore[no-untyped-def]
    while True:
        found = (await world.locate()).groups.keeper
        if found is not None:
            return found
        await world.clock.sleep(0.01)


async def create(world: World) -> GroupView:
    request = CreateGroup(KEY, LEASE_MS, TimeTick(0), exist_ok=False)
    answer = await (await keeper(world)).ask(request, deadline_s=60)
    assert isinstance(answer, GroupView), answer
    return answer


async def shown(world: World) -> GroupView:
    views = await (await keeper(world)).ask(ListGroups((VCHANNEL,), "workers"), deadline_s=60)
    (view,) = views
    assert isinstance(view, GroupView)
    return view


class Worker:
    """A member, over one life of the Group."""

    def __init__(self, group, joined: GroupJoined, clock) -> None:  # type: ignore[no-untyped-def]
        self.group, self.joined, self.clock = group, joined, clock

    async def take(self, bytes_max: int = MIB) -> LeasedMessages:
        answer = await self.group.ask(TakeMessages(self.joined.member, bytes_max), deadline_s=60)
        assert isinstance(answer, LeasedMessages), answer
        return answer

    async def ack(self, lease: int, *spans: TickSpan) -> Refusal | None:
        request = AckMessages(self.joined.member, lease, spans)
        answer: Refusal | None = await self.group.ask(request, deadline_s=60)
        return answer

    async def nack(self, lease: int, delay_ms: int = 0) -> Refusal | None:
        request = NackMessages(self.joined.member, lease, (), delay_ms)
        answer: Refusal | None = await self.group.ask(request, deadline_s=60)
        return answer

    async def extend(self, lease: int) -> Refusal | None:
        answer: Refusal | None = await self.group.ask(
            ExtendLease(self.joined.member, lease), deadline_s=60
        )
        return answer

    def leave(self) -> None:
        self.group.tell(LeaveGroup(self.joined.member))


async def join(world: World, name: str = "ann") -> Worker:
    group = await (await keeper(world)).ask(OpenGroup(KEY), deadline_s=60)
    assert not isinstance(group, Refusal), group
    joined = await group.ask(JoinGroup(name), deadline_s=60)
    assert isinstance(joined, GroupJoined), joined
    return Worker(group, joined, world.clock)


def bodies(leased: LeasedMessages) -> list[str]:
    found = each_of(leased.items)
    return [event.body.decode() for event in found if isinstance(event, Delivered)]


async def fill(world: World, texts: Sequence[str]) -> list[TimeTick]:
    return [appended(await world.append(message(text)))[0].tick for text in texts]


def test_members_share_messages_and_what_is_acknowledged_is_over() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await fill(world, ["a", "b"])
            ann, bob = await join(world), await join(world, "bob")
            first = await ann.take(1)
            assert bodies(first) == ["a"]
            assert bodies(await bob.take()) == ["b"]
            assert await ann.ack(first.lease) is None
            view = await shown(world)
            assert view.group.floor == first.span.upto
            assert [(it.name, it.leases) for it in view.members] == [("ann", 0), ("bob", 1)]
            ticks = await fill(world, ["c"])
            third = await ann.take()
            assert bodies(third) == ["c"]
            assert third.span.upto >= ticks[0]

    run_seeded(1, scenario)


def test_a_lease_that_is_over_goes_to_another_member_and_can_no_longer_be_acknowledged() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await fill(world, ["a"])
            ann, bob = await join(world), await join(world, "bob")
            lost = await ann.take()
            await world.clock.sleep(LEASE_MS / 1000 - 1)
            assert await ann.extend(lost.lease) is None
            await world.clock.sleep(2)
            assert bodies(await bob.take()) == []
            await world.clock.sleep(LEASE_MS / 1000)
            again = await bob.take()
            assert (bodies(again), again.times) == (["a"], 2)
            refusal = await ann.ack(lost.lease)
            assert isinstance(refusal, Refusal)
            assert refusal.code is StreamingCode.INVALID_REQUEST_SEQ
            assert await bob.ack(again.lease) is None
            assert (await shown(world)).redelivered == 1

    run_seeded(1, scenario)


def test_nobody_acknowledges_what_is_on_lease_to_another_member_or_to_nobody() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            ticks = await fill(world, ["a", "b"])
            ann, bob = await join(world), await join(world, "bob")
            lease = await ann.take()
            assert bodies(lease) == ["a", "b"]
            for refusal in (
                await bob.ack(lease.lease),
                await bob.nack(lease.lease),
                await bob.extend(lease.lease),
                await ann.ack(lease.lease + 1),
                await ann.ack(0),
            ):
                assert isinstance(refusal, Refusal)
                assert refusal.code is StreamingCode.INVALID_REQUEST_SEQ
                assert "is over, settled, or of another member" in refusal.cause
            # Ticks above the lease, all or some of them.
            end = lease.span.upto
            for after in (end, ticks[0] - 1):
                span = TickSpan(TimeTick(after), TimeTick(end + 9))
                refusal = await ann.ack(lease.lease, span)
                assert isinstance(refusal, Refusal)
                assert refusal.code is StreamingCode.INVALID_ARGUMENT
                assert f"are not on lease {lease.lease}" in refusal.cause
            assert (await shown(world)).group.floor < ticks[0]
            assert await ann.ack(lease.lease) is None
            again = await ann.ack(lease.lease)
            assert isinstance(again, Refusal)

    run_seeded(1, scenario)


def test_what_a_member_has_that_leaves_goes_to_another_at_once() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await fill(world, ["a", "b"])
            ann, bob = await join(world), await join(world, "bob")
            assert bodies(await ann.take()) == ["a", "b"]
            began_s = world.clock.monotonic_s()
            ann.leave()
            assert bodies(await bob.take()) == ["a", "b"]
            assert world.clock.monotonic_s() - began_s < 2

    run_seeded(1, scenario)


def test_a_part_of_a_lease_is_acknowledged_and_only_the_rest_comes_again() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            (a, b, c) = appended(await world.append(message("a"), message("b"), message("c")))
            ann = await join(world)
            lease = await ann.take()
            assert bodies(lease) == ["a", "b", "c"]
            assert await ann.ack(lease.lease, TickSpan(a.tick, b.tick)) is None
            twice = await ann.ack(lease.lease, TickSpan(a.tick, b.tick))
            assert isinstance(twice, Refusal)
            assert twice.code is StreamingCode.INVALID_ARGUMENT
            outside = await ann.ack(lease.lease, TickSpan(c.tick, TimeTick(c.tick + 9)))
            assert isinstance(outside, Refusal)
            assert (await shown(world)).group.acked == (TickSpan(a.tick, b.tick),)
            assert await ann.nack(lease.lease, 60_000) is None
            began_s = world.clock.monotonic_s()
            again = LeasedMessages(0, lease.span, 0, ())
            while not again.lease:
                again = await ann.take()
            assert bodies(again) == ["a", "c"]
            assert world.clock.monotonic_s() - began_s >= 60
            assert await ann.ack(again.lease) is None
            assert (await shown(world)).group.floor == lease.span.upto

    run_seeded(1, scenario)


def test_a_transaction_is_leased_whole_at_its_commit() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            (begun,) = await world.append(message("begin", 0, 900, txn=BEGIN))
            txn = begun.txn  # type: ignore[union-attr]
            await world.append(message("x", txn=txn), message("y", txn=txn))
            await fill(world, ["a"])
            ann = await join(world)
            plain = await ann.take(1)
            assert bodies(plain) == ["a"]
            assert await ann.ack(plain.lease) is None
            appended(await world.append(message("commit", 0, 901, txn=txn)))
            whole = await ann.take(1)
            assert bodies(whole)[1:3] == ["x", "y"]
            assert await ann.ack(whole.lease) is None
            assert bodies(await ann.take()) == []

    run_seeded(1, scenario)


@pytest.mark.parametrize("actor", ["appender", "group_keeper", f"groups/workers@{VCHANNEL}"])
def test_whoever_dies_acknowledgements_stay_and_the_rest_comes_again(actor: str) -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await fill(world, ["a", "b", "c"])
            ann = await join(world)
            first = await ann.take(1)
            assert await ann.ack(first.lease) is None
            assert bodies(await ann.take(1)) == ["b"]
            world.system.kill(world.path(actor))
            await world.clock.sleep(5)
            bob = await join(world, "bob")
            left = [bodies(await bob.take()), bodies(await bob.take())]
            assert left[0] + left[1] == (["c"] if actor == "group_keeper" else ["b", "c"])

    run_seeded(1, scenario)


def test_a_new_owner_knows_the_group_from_the_log() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await fill(world, ["a", "b"])
            ann = await join(world)
            lease = await ann.take(1)
            assert await ann.ack(lease.lease) is None
            before = (await shown(world)).group
            assert await world.remove() is None
            assert await world.assign(term=2) is None
            assert (await shown(world)).group == before
            assert bodies(await (await join(world)).take()) == ["b"]

    run_seeded(1, scenario)


def test_a_group_is_dropped_or_sought_only_without_members_and_ends_when_idle() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            (a, _) = await fill(world, ["a", "b"])
            ann = await join(world)
            lease = await ann.take()
            assert await ann.ack(lease.lease) is None
            door = await keeper(world)
            for change in (DropGroup(KEY), SeekGroup(KEY, TimeTick(0))):
                refusal = await door.ask(change, deadline_s=60)
                assert isinstance(refusal, Refusal)
                assert refusal.code is StreamingCode.RESOURCE_ACQUIRED
            ann.leave()
            sought = await door.ask(SeekGroup(KEY, a), deadline_s=60)
            assert isinstance(sought, GroupView), sought
            ann = await join(world)
            assert bodies(await ann.take()) == ["b"]
            ann.leave()
            await world.clock.sleep(IDLE_S + 1)
            assert not [it for it in world.system.statistics() if "/groups/" in it.path]
            assert await door.ask(DropGroup(KEY), deadline_s=60) is None
            gone = await door.ask(DropGroup(KEY), deadline_s=60)
            assert isinstance(gone, Refusal)
            assert await door.ask(ListGroups((), ""), deadline_s=60) == ()

    run_seeded(1, scenario)


def test_readers_do_not_see_changes_of_groups() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await world.assign()
            await create(world)
            await fill(world, ["a"])
            ann = await join(world)
            lease = await ann.take()
            assert await ann.ack(lease.lease) is None
            landed = await fill(world, ["b"])
            for reader in (Reader(world, VCHANNEL), Reader(world)):
                await reader.read_until((await world.offsets()).next_id - 1)
                assert [it.body for it in reader.messages] == [b"a", b"b"]
            assert landed

    run_seeded(1, scenario)
