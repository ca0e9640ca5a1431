"""What a member is sent: a lease ahead of the one that is written, within its credit and limits."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from actors.testing import run_seeded
from broker.core.groups.group_rules import LEASE_MS
from broker.core.log.delivery import DeliveredItem
from broker.edge.groups.lease_delivery import TAKE_BYTES_MIN, LeaseDelivery, TakingMember
from broker.edge.rpc.read_pace import ReadPace
from broker.model.failure import Refused, StreamingCode
from broker.node.group_messages import LeaveGroup
from tests.broker.node.groups.test_group_leases import (
    KEY,
    MIB,
    Worker,
    create,
    fill,
    join,
    shown,
)
from tests.broker.node.world import World, running_node

STEP_S = 1.0
"""Longer than anything takes that need not wait."""


class Pace(ReadPace):
    """A limit, and what is owed for it: `pay` waits until it is set."""

    def __init__(self, *, limited: bool) -> None:
        self.is_limited = limited
        self.paid = asyncio.Event()
        if not limited:
            self.paid.set()

    @property
    def limited(self) -> bool:
        return self.is_limited

    async def pay(self, items: Sequence[DeliveredItem]) -> None:
        if items:
            await self.paid.wait()


class Wire:
    """A peer that lets responses through one by one."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.begun = 0
        self._let = asyncio.Semaphore(0)

    async def room(self) -> int:
        return MIB

    async def write(self, framed: bytes) -> None:
        self.begun += 1
        await self._let.acquire()
        self.written.append(framed)

    def let_through(self, count: int = 1) -> None:
        for _ in range(count):
            self._let.release()


class Scene:
    def __init__(self, world: World, ann: Worker, wire: Wire, delivery: LeaseDelivery) -> None:
        self.world, self.ann, self.wire, self.delivery = world, ann, wire, delivery
        self.failure: BaseException | None = None

    async def leases(self) -> int:
        await self.world.clock.sleep(STEP_S)
        (member,) = (await shown(self.world)).members
        return member.leases

    async def run(self) -> None:
        try:
            await self.delivery.run()
        except Refused as error:
            self.failure = error


@asynccontextmanager
async def delivering(pace: Pace) -> AsyncIterator[Scene]:
    """Three messages, each of more than the least lease, so that each lease has one of them."""
    async with running_node() as world:
        await world.assign()
        await create(world)
        await fill(world, [letter * TAKE_BYTES_MIN for letter in "abc"])
        ann, wire = await join(world), Wire()
        joined = ann.joined
        taking = TakingMember(ann.group, joined.member, TAKE_BYTES_MIN, joined.lease_ms)
        stream: Any = wire
        scene = Scene(world, ann, wire, LeaseDelivery(stream, taking, wire.write, pace))
        running = asyncio.create_task(scene.run())  # noqa: TID251 - ended below
        try:
            yield scene
        finally:
            running.cancel()
            await asyncio.wait([running])


def test_one_lease_is_taken_while_the_one_before_it_is_written() -> None:
    async def scenario() -> None:
        async with delivering(Pace(limited=False)) as here:
            here.delivery.grant(MIB)
            assert await here.leases() == 2, "one is written, one waits, and none goes further"
            assert here.wire.begun == 1
            here.wire.let_through()
            assert await here.leases() == 3
            here.wire.let_through(2)
            assert await here.leases() == 3
            letters = [bytes([it[-1]]) for it in here.wire.written]
            assert letters == [b"a", b"b", b"c"], "in order, each once"

    run_seeded(1, scenario)


def test_a_lease_ahead_is_within_the_credit() -> None:
    async def scenario() -> None:
        async with delivering(Pace(limited=False)) as here:
            here.delivery.grant(1)
            assert await here.leases() == 1
            here.wire.let_through(3)
            assert await here.leases() == 1, "nothing is left of the credit"
            here.delivery.grant(2 * TAKE_BYTES_MIN)
            assert await here.leases() == 2
            here.delivery.grant(MIB)
            assert await here.leases() == 3

    run_seeded(1, scenario)


def test_a_member_with_a_limit_takes_nothing_before_it_has_paid() -> None:
    async def scenario() -> None:
        pace = Pace(limited=True)
        async with delivering(pace) as here:
            here.delivery.grant(MIB)
            assert await here.leases() == 1
            here.wire.let_through(3)
            assert await here.leases() == 1
            pace.paid.set()
            assert await here.leases() == 3

    run_seeded(1, scenario)


def test_a_lease_ahead_of_a_member_that_has_left_goes_to_others() -> None:
    async def scenario() -> None:
        async with delivering(Pace(limited=False)) as here:
            here.delivery.grant(MIB)
            assert await here.leases() == 2
            bob = await join(here.world, "bob")
            here.ann.group.tell(LeaveGroup(here.ann.joined.member))
            taken = [(await bob.take(TAKE_BYTES_MIN)).times for _ in range(3)]
            assert sorted(taken) == [1, 2, 2]

    run_seeded(1, scenario)


def test_a_lease_ahead_that_ended_before_it_could_be_sent_is_not_sent() -> None:
    async def scenario() -> None:
        async with delivering(Pace(limited=False)) as here:
            here.delivery.grant(MIB)
            assert await here.leases() == 2
            # The peer reads nothing for so long: others may have both by now.
            await here.world.clock.sleep(LEASE_MS / 1000)
            bob = await join(here.world, "bob")
            others = [await bob.take(TAKE_BYTES_MIN) for _ in range(3)]
            assert sorted([it.times for it in others]) == [1, 2, 2]
            here.wire.let_through(2)
            await here.world.clock.sleep(STEP_S)
            letters = [bytes([it[-1]]) for it in here.wire.written]
            assert letters == [b"a"], "it was on its way; the one behind it was not"
            assert here.wire.begun == 1

    run_seeded(1, scenario)


def test_the_end_of_the_group_ends_the_stream() -> None:
    async def scenario() -> None:
        async with delivering(Pace(limited=False)) as here:
            here.delivery.grant(MIB)
            await here.leases()
            here.world.system.kill(here.world.path(f"groups/{KEY.name}@{KEY.vchannel}"))
            here.wire.let_through(3)
            await here.world.clock.sleep(STEP_S)
            assert isinstance(here.failure, Refused)
            assert here.failure.refusal.code is StreamingCode.ON_SHUTDOWN

    run_seeded(1, scenario)


def test_a_refusal_of_the_group_is_one_of_the_stream() -> None:
    async def scenario() -> None:
        async with delivering(Pace(limited=False)) as here:
            here.ann.leave()
            here.delivery.grant(MIB)
            await here.world.clock.sleep(STEP_S)
            assert isinstance(here.failure, Refused)
            assert here.failure.refusal.code is StreamingCode.INVALID_REQUEST_SEQ

    run_seeded(1, scenario)
