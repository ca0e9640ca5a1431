"""A node that stops while the coordinator stops, too: whom it tells, and how long it tries."""

import anyio

from actors.testing import run_seeded
from broker.node.membership.membership import LEAVE_S, Retire
from broker.ports.nodes import NodeLease, Unreachable
from tests.broker.node.membership.test_membership import AWAY, MEMBERSHIP, EnrolmentFake, join
from tests.broker.node.world import World, running_node

RETIRE_S = 0.75


async def retire(world: World) -> bool:
    return await world.system.find(MEMBERSHIP).ask(Retire(RETIRE_S), deadline_s=2 * RETIRE_S)


def back_after(world: World, enrolment: EnrolmentFake, seconds: float) -> None:
    """Another coordinator takes over then."""

    def lead() -> None:
        enrolment.refusal = None

    world.clock.call_later(seconds, lead)


def test_a_node_that_stops_with_the_leader_of_its_host_hands_off_to_the_next_leader() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            await member.join.wait()
            member.enrolment.refusal = AWAY
            back_after(world, member.enrolment, 0.5)
            assert await retire(world)
            assert member.enrolment.stopping

    run_seeded(61, scenario)


def test_a_node_takes_leave_of_the_next_leader_if_that_one_leads_soon() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            await member.join.wait()
            member.enrolment.refusal = AWAY
            back_after(world, member.enrolment, LEAVE_S / 2)
            await world.system.stop_child(MEMBERSHIP)
            assert member.enrolment.left == [1]

    run_seeded(62, scenario)


def test_a_node_that_stops_waits_a_bounded_time_for_a_next_leader() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            await member.join.wait()
            member.enrolment.refusal = AWAY
            began_s = world.clock.monotonic_s()
            assert not await retire(world)
            assert world.clock.monotonic_s() - began_s <= RETIRE_S
            began_s = world.clock.monotonic_s()
            await world.system.stop_child(MEMBERSHIP)
            assert world.clock.monotonic_s() - began_s <= LEAVE_S

    run_seeded(63, scenario)


def test_a_node_that_stops_waits_for_no_coordinator_where_none_is_left() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            await member.join.wait()
            member.enrolment.gone, asked = True, member.enrolment.asked
            began_s = world.clock.monotonic_s()
            assert not await retire(world)
            await world.system.stop_child(MEMBERSHIP)
            assert world.clock.monotonic_s() == began_s
            assert member.enrolment.asked == asked + 2, "one renewal, and one good-bye"

    run_seeded(64, scenario)


def test_a_node_that_has_not_joined_or_whose_session_is_over_stops_at_once() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            await join(world, EnrolmentFake(AWAY))
            began_s = world.clock.monotonic_s()
            assert not await retire(world)
            assert world.clock.monotonic_s() == began_s
        async with running_node() as world:
            member = await join(world)
            await member.join.wait()
            member.enrolment.forgotten = True
            began_s = world.clock.monotonic_s()
            assert not await retire(world)
            assert world.clock.monotonic_s() == began_s

    run_seeded(65, scenario)


def test_a_coordinator_that_does_not_answer_is_asked_no_longer_than_the_stop_may_take() -> None:
    class Silent(EnrolmentFake):
        async def renew(
            self, session: int, deadline_s: float, settings_revision: int, *, stopping: bool
        ) -> NodeLease:
            if stopping:
                await anyio.sleep(deadline_s)
                raise Unreachable("no answer")
            return await super().renew(session, deadline_s, settings_revision, stopping=stopping)

    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world, Silent())
            await member.join.wait()
            began_s = world.clock.monotonic_s()
            assert not await retire(world)
            assert world.clock.monotonic_s() - began_s <= RETIRE_S

    run_seeded(66, scenario)
