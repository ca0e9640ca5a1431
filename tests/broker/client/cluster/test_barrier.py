"""The peer of a barrier: what its reports do when something replaces, delays or cuts them off."""

from collections import deque
from itertools import count

import anyio
import pytest

from actors.testing import run_seeded
from broker.client.cluster.barrier import Peer
from broker.client.cluster.barrier_calls import BarrierCalls, BarrierMember
from broker.client.errors import ChannelFenced, ConnectionLost, DeadlineExceeded, TidemarkError
from broker.client.refusal_kinds import refusal
from broker.core.time.barrier_peers import PeerLease
from broker.model.barrier import BarrierKind
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import TimeTick
from broker.timesync.group import Group

FENCED = ChannelFenced("another peer has this name")
MEMBER = BarrierMember("nightly", BarrierKind.HARD, "worker-1")
LOST = ConnectionLost("the connection broke")


class ScriptedCalls(BarrierCalls):
    """Reports fail with these errors, one after the other; the last one repeats."""

    def __init__(self, *errors: TidemarkError) -> None:
        self._errors = deque(errors)

    async def report(self, member: BarrierMember, lease_id: int, tick: int) -> TimeTick:
        await anyio.lowlevel.checkpoint()
        raise self._errors.popleft() if len(self._errors) > 1 else self._errors[0]


async def test_a_peer_that_was_replaced_raises_that_and_not_a_lost_connection() -> None:
    async with anyio.create_task_group() as tasks:
        peer = Peer(ScriptedCalls(FENCED, LOST), tasks, MEMBER, 10.0, 0)

        async def report() -> None:
            with pytest.raises(ChannelFenced):
                await peer.report(7)

        # The second report waits for the first, so it does not know yet that it was replaced.
        tasks.start_soon(report)
        tasks.start_soon(report)


async def test_a_report_that_fails_until_the_deadline_names_tick_and_cause() -> None:
    async with anyio.create_task_group() as tasks:
        peer = Peer(ScriptedCalls(LOST), tasks, MEMBER, 10.0, 0)
        with pytest.raises(DeadlineExceeded, match=r"tick 7 .* the connection broke"):
            await peer.report(7, deadline_s=0.05)


class ServerCalls(BarrierCalls):
    """The server's own rules; the answers to `lost` joins do not come, though they are done."""

    def __init__(self) -> None:
        self.group: Group | None = None
        self.lost = 0
        self.cut_after_loss = False
        self.cut = False
        self.slow_s = 0.0
        self.silent = False
        self.forgetful = False
        self._ids = count(1)

    async def join(self, member: BarrierMember, lease_s: float, interval_ms: int) -> int:
        lease = PeerLease(next(self._ids), lease_s, anyio.current_time())
        if self.group is None:
            self.group = Group(member.barrier, member.kind, 0, {member.peer: lease})
        else:
            self.group.join(member.peer, lease)
        await anyio.sleep(self.slow_s)
        if self.lost:
            self.lost -= 1
            self.cut = self.cut_after_loss
            raise LOST
        if self.forgetful:  # restarted right after the answer
            self.forgetful, self.group = False, None
        return lease.id

    async def report(self, member: BarrierMember, lease_id: int, tick: int) -> TimeTick:
        await anyio.lowlevel.checkpoint()
        if self.cut:
            raise LOST
        if self.silent:
            self.silent = False
            await anyio.sleep_forever()
        try:
            if self.group is None:
                raise Refused(StreamingCode.INVALID_REQUEST_SEQ, "no such barrier; join again")
            self.group.check(member.peer, lease_id)
        except Refused as refused:
            raise refusal(int(refused.refusal.code), refused.refusal.cause) from None
        self.group.report(member.peer, TimeTick(tick))
        return self.group.passed

    async def leave(self, member: BarrierMember, lease_id: int, *, deadline_s: float) -> None:
        """Nothing."""


def test_a_peer_whose_join_was_not_answered_is_not_fenced_by_itself() -> None:
    async def scenario() -> None:
        server = ServerCalls()
        async with anyio.create_task_group() as tasks, Peer(server, tasks, MEMBER, 10.0, 0) as peer:
            assert await peer.report(1) == 1
            server.group = None  # the coordinator was restarted
            server.lost = 1
            assert await peer.report(2) == 2
            tasks.cancel_scope.cancel()

    run_seeded(1, scenario)


def test_a_peer_whose_join_outlasted_a_deadline_is_not_fenced_by_itself() -> None:
    async def scenario() -> None:
        server = ServerCalls()
        async with anyio.create_task_group() as tasks, Peer(server, tasks, MEMBER, 10.0, 0) as peer:
            server.group, server.slow_s = None, 0.2
            with pytest.raises(DeadlineExceeded, match=r"0\.1 s"):
                await peer.report(1, deadline_s=0.1)
            server.slow_s = 0.0
            assert await peer.report(2) == 2
            tasks.cancel_scope.cancel()

    run_seeded(1, scenario)


def test_a_peer_that_another_program_replaced_later_does_not_take_its_place_back() -> None:
    async def scenario() -> None:
        server = ServerCalls()
        async with anyio.create_task_group() as tasks, Peer(server, tasks, MEMBER, 10.0, 0) as peer:
            server.group, server.lost = None, 1
            assert await peer.report(1) == 1
            await server.join(MEMBER, 10.0, 0)
            for _ in range(2):
                with pytest.raises(ChannelFenced):
                    await peer.report(2)
            tasks.cancel_scope.cancel()

    run_seeded(1, scenario)


def test_a_peer_that_was_away_for_long_after_a_lost_join_leaves_its_successor_alone() -> None:
    async def scenario() -> None:
        server = ServerCalls()
        async with anyio.create_task_group() as tasks, Peer(server, tasks, MEMBER, 10.0, 0) as peer:
            server.group, server.lost, server.cut_after_loss = None, 1, True
            with pytest.raises(DeadlineExceeded):
                await peer.report(1, deadline_s=1.0)
            await anyio.sleep(3 * 10.0)
            successor = await server.join(MEMBER, 10.0, 0)
            server.cut = False
            with pytest.raises(ChannelFenced):
                await peer.report(2)
            assert await server.report(MEMBER, successor, 3) == 3
            tasks.cancel_scope.cancel()

    run_seeded(1, scenario)


def test_a_silent_coordinator_does_not_cost_a_peer_its_lease() -> None:
    async def scenario() -> None:
        server = ServerCalls()
        async with anyio.create_task_group() as tasks, Peer(server, tasks, MEMBER, 10.0, 0) as peer:
            server.silent = True
            began_s = anyio.current_time()
            assert await peer.report(1) == 1
            assert anyio.current_time() - began_s < 10.0 * 2 / 3
            tasks.cancel_scope.cancel()

    run_seeded(1, scenario)


def test_a_coordinator_that_stops_leading_right_after_a_join_is_no_error() -> None:
    async def scenario() -> None:
        server = ServerCalls()
        async with anyio.create_task_group() as tasks, Peer(server, tasks, MEMBER, 10.0, 0) as peer:
            server.group, server.forgetful = None, True
            assert await peer.report(1) == 1
            tasks.cancel_scope.cancel()

    run_seeded(1, scenario)
