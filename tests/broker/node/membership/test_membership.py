"""The node's side of its lease: when it may write, and what it does when the lease ends."""

from dataclasses import dataclass, field, replace

from actors import ChildSpec, System
from actors.testing import run_seeded
from broker.app.settings_in_force import SettingsInForce
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.master.live_config import StoredSettings
from broker.model.message import Appended
from broker.node.membership.cluster_join import IN_USE_LEASES, ClusterJoin
from broker.node.membership.leased import Leased
from broker.node.membership.membership import (
    LEASE_SHARE,
    RETRIES_PER_LEASE,
    RETRY_S_MAX,
    Membership,
    RefreshSettings,
    Retire,
)
from broker.node.state.write_lease import WriteLease
from broker.ports.nodes import NodeLease, Unreachable
from broker.process_settings import Settings
from tests.broker.node.world import DIRECTORY, NODE, PCHANNEL, World, message, running_node

LEASE_S = 2.0
WAIT_S = 20.0
MEMBERSHIP = "/root/membership"


@dataclass
class EnrolmentFake:
    """A coordinator that gives leases; `refusal` is what it answers instead."""

    refusal: Refusal | None = None
    gone: bool = False
    """Nothing listens there."""
    asked: int = 0
    forgotten: bool = False
    session: int = 0
    renewals: int = 0
    left: list[int] = field(default_factory=list)
    stopping: bool = False
    paused: bool = False
    settings: StoredSettings = StoredSettings()

    async def register(self, deadline_s: float, settings_revision: int) -> NodeLease:
        self._answer()
        self.session += 1
        self.forgotten = False
        lease = NodeLease(self.session, LEASE_S, consumption_paused=self.paused)
        return self._with_settings(lease, settings_revision)

    async def renew(
        self, session: int, deadline_s: float, settings_revision: int, *, stopping: bool
    ) -> NodeLease:
        self._answer()
        if self.forgotten or session != self.session:
            raise Refused(StreamingCode.IGNORED_OPERATION, "the session is over")
        self.renewals += 1
        self.stopping = stopping
        return self._with_settings(
            NodeLease(session, LEASE_S, stopping, self.paused), settings_revision
        )

    async def leave(self, session: int, deadline_s: float) -> None:
        self._answer()
        self.left.append(session)

    def _with_settings(self, lease: NodeLease, known: int) -> NodeLease:
        newer = known != self.settings.revision
        return replace(lease, settings=self.settings) if newer else lease

    def _answer(self) -> None:
        self.asked += 1
        if self.gone:
            raise Unreachable("nothing listens there", absent=True)
        if self.refusal is not None:
            raise Refused(self.refusal.code, self.refusal.cause)


AWAY = Refusal(StreamingCode.INNER, "nobody there")


@dataclass
class Member:
    world: World
    enrolment: EnrolmentFake
    join: ClusterJoin
    settings: SettingsInForce

    @property
    def write_lease(self) -> WriteLease:
        return self.world.node.write_lease

    def may_write(self) -> bool:
        return self.write_lease.holds(self.write_lease.session, self.world.clock.monotonic_s())


async def join(world: World, enrolment: EnrolmentFake | None = None) -> Member:
    enrolment, join = enrolment or EnrolmentFake(), ClusterJoin(LEASE_S, WAIT_S)
    settings = SettingsInForce(Settings())
    spec = ChildSpec(
        "membership",
        lambda: Membership(
            NODE,
            enrolment,
            Leased(world.node.write_lease, world.node.pause, settings),
            join,
            lambda: find(world.system),
        ),
    )
    await world.system.start_child("/root", spec)
    return Member(world, enrolment, join, settings)


def find(system: System):  # type: ignore[no-untyped-def]
    return system.find(DIRECTORY)


async def outcome(world: World) -> StreamingCode | None:
    (answer,) = await world.append(message())
    return None if isinstance(answer, Appended) else answer.code


def test_a_node_without_answers_stops_writing_before_its_lease_ends_and_resumes_later() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            assert await member.join.wait() is None
            await world.assign(term=1)
            await world.locate(term=1)
            assert await outcome(world) is None
            member.enrolment.refusal = AWAY
            await world.clock.sleep(LEASE_S * LEASE_SHARE)
            assert not member.may_write()
            assert await outcome(world) is StreamingCode.ON_SHUTDOWN
            await world.clock.sleep(60.0)
            member.enrolment.refusal = None
            await world.clock.sleep(2.0)
            assert await outcome(world) is None, "its session was still known: same term"
            assert (await world.locate()).channel.term == 1

    run_seeded(1, scenario)


def test_a_node_whose_session_ended_closes_its_channels_and_registers_again() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            await world.assign(term=1)
            await world.locate(term=1)
            member.enrolment.forgotten = True
            await world.clock.sleep(LEASE_S)
            assert member.enrolment.session == 2
            assert world.node.open_channels.all() == []
            assert await world.assign(term=1) is not None, "what was given up stays given up"
            assert await world.assign(term=2) is None
            await world.locate(term=2)
            assert await outcome(world) is None

    run_seeded(2, scenario)


def test_a_channel_assigned_before_the_first_lease_is_open_for_writing_after_it() -> None:
    """By a coordinator that takes this process for the one it has replaced."""

    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world, EnrolmentFake(AWAY))
            refusal = await world.assign(term=1)
            assert refusal is not None
            assert refusal.code is StreamingCode.ON_SHUTDOWN
            assert not member.may_write()
            assert world.node.open_channels.all() == []
            member.enrolment.refusal = None
            assert await member.join.wait() is None
            assert await outcome(world) is None

    run_seeded(12, scenario)


def test_a_writer_of_an_earlier_session_never_writes_again() -> None:
    write_lease = WriteLease()
    assert write_lease.holds(0, 1e9), "without a coordinator it is for ever"
    write_lease.until(10.0, session=1)
    assert not write_lease.holds(0, 1.0)
    assert write_lease.holds(1, 9.9)
    assert not write_lease.holds(1, 10.0)
    write_lease.end()
    assert not write_lease.holds(1, 1.0)


def test_a_killed_membership_keeps_the_right_to_write() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            await member.join.wait()
            world.system.kill(MEMBERSHIP)
            await world.clock.sleep(10 * LEASE_S)
            assert member.may_write()

    run_seeded(3, scenario)


def test_a_killed_membership_whose_session_is_over_closes_the_channels_of_it() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            await member.join.wait()
            await world.assign(term=1)
            member.enrolment.forgotten = True
            world.system.kill(MEMBERSHIP)
            await world.clock.sleep(2 * LEASE_S)
            assert member.enrolment.session == 2
            assert member.may_write()
            assert world.node.open_channels.all() == []

    run_seeded(13, scenario)


def test_a_channel_that_restarts_in_a_later_session_than_its_own_serves_nobody() -> None:
    """Others may have owned it in between; until it is closed here it must close no tick."""

    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            await member.join.wait()
            await world.assign(term=1)
            member.enrolment.session = 2
            member.write_lease.until(world.clock.monotonic_s() + LEASE_S, session=2)
            world.system.kill(world.path("appender"))
            await world.clock.sleep(LEASE_S / 10)
            assert world.node.open_channels.all() == [], "before the next renewal"
            await world.clock.sleep(LEASE_S)
            assert await world.assign(term=world.terms.newest[PCHANNEL] + 1) is None

    run_seeded(14, scenario)


def test_a_node_that_stops_hands_off_its_channels_and_leaves() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            await member.join.wait()
            moving = await world.system.find(MEMBERSHIP).ask(Retire(1.0), deadline_s=5.0)
            assert moving is True
            assert member.enrolment.stopping
            await world.system.stop_child(MEMBERSHIP)
            assert member.enrolment.left == [1]
            assert not member.may_write(), "from the good-bye on"

    run_seeded(4, scenario)


def test_a_new_node_waits_for_its_coordinator_for_a_while_and_then_reports_why_it_ends() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world, EnrolmentFake(AWAY))
            await world.clock.sleep(WAIT_S / 2)
            member.enrolment.refusal = None
            assert await member.join.wait() is None
        async with running_node() as world:
            member = await join(world, EnrolmentFake(AWAY))
            began_s = world.clock.monotonic_s()
            assert await member.join.wait() == AWAY
            assert WAIT_S <= world.clock.monotonic_s() - began_s < WAIT_S + 2 * RETRY_S_MAX

    run_seeded(5, scenario)


def test_a_node_that_joined_once_waits_for_its_coordinator_for_ever() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            assert await member.join.wait() is None
            member.enrolment.refusal = AWAY
            await world.clock.sleep(600.0)
            member.enrolment.refusal = None
            await world.clock.sleep(LEASE_S)
            assert member.may_write()
            assert await member.join.wait() is None

    run_seeded(10, scenario)


def test_a_coordinator_that_is_back_is_found_long_before_the_lease_ends() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            member = await join(world)
            await member.join.wait()
            member.enrolment.refusal = AWAY
            await world.clock.sleep(LEASE_S * LEASE_SHARE / 2)
            member.enrolment.refusal, before = None, member.enrolment.renewals
            await world.clock.sleep(LEASE_S / RETRIES_PER_LEASE)
            assert member.enrolment.renewals > before
            assert member.may_write()

    run_seeded(11, scenario)


def test_a_node_id_in_use_is_reported_once_a_dead_holders_lease_would_have_ended() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            used = Refusal(StreamingCode.RESOURCE_ACQUIRED, "node id 1 is in use")
            member = await join(world, EnrolmentFake(used))
            began_s = world.clock.monotonic_s()
            assert await member.join.wait() == used
            assert world.clock.monotonic_s() - began_s >= LEASE_S * IN_USE_LEASES

    run_seeded(6, scenario)


def test_a_refusal_that_retries_cannot_fix_ends_the_wait_at_once() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            wrong = Refusal(StreamingCode.INVALID_ARGUMENT, "another cluster's data")
            member = await join(world, EnrolmentFake(wrong))
            assert await member.join.wait() == wrong
            assert world.clock.monotonic_s() < 1.0

    run_seeded(7, scenario)


def test_the_pause_of_consumption_comes_with_every_lease() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            enrolment = EnrolmentFake(paused=True)
            await join(world, enrolment)
            await world.clock.sleep(0.1)
            assert world.node.pause.on
            enrolment.paused = False
            await world.clock.sleep(LEASE_S)
            assert not world.node.pause.on

    run_seeded(9, scenario)


def test_settings_come_with_a_lease_and_are_applied_when_a_refresh_is_answered() -> None:
    async def scenario() -> None:
        async with running_node() as world:
            enrolment = EnrolmentFake(settings=StoredSettings(7, {"retention_ms": "5"}))
            member = await join(world, enrolment)
            assert await member.join.wait() is None
            assert (member.settings.revision, member.settings.now.retention_ms) == (7, 5)
            enrolment.settings = StoredSettings(9, {"retention_bytes": "6"})
            renewals = enrolment.renewals
            at = await world.system.find(MEMBERSHIP).ask(RefreshSettings(9), deadline_s=1.0)
            now = member.settings.now
            assert (at, now.retention_ms, now.retention_bytes) == (9, 0, 6)
            assert enrolment.renewals == renewals + 1
            # The same again: nothing is renewed for it.
            await world.system.find(MEMBERSHIP).ask(RefreshSettings(9), deadline_s=1.0)
            assert enrolment.renewals == renewals + 1
            # A coordinator that cannot be reached: the answer is what holds.
            enrolment.refusal = AWAY
            at = await world.system.find(MEMBERSHIP).ask(RefreshSettings(11), deadline_s=1.0)
            assert (at, member.settings.now.retention_bytes) == (9, 6)

    run_seeded(51, scenario)
