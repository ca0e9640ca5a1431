"""Endpoints that answer as of another etcd cluster, beside some that answer nothing, or errors."""

from collections.abc import Callable
from typing import TypeVar

import anyio
import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from actors.testing import run_seeded
from broker.etcd.etcd_errors import StoreWentBack, Unanswered, told
from broker.etcd.members import APART_S, CALL_S, Member, Members
from broker.etcd.place import etcd_place
from broker.etcd.requests import RANGE
from broker.transport.codec import WireMessage
from schemas.generated.etcdserverpb import RangeRequest, RangeResponse, ResponseHeader

A = TypeVar("A", bound=WireMessage)
OWN, OTHER, DEAD, SILENT, LEADERLESS, PROXIED = 1, 2, 0, -1, -2, -3
ERRORS = {
    LEADERLESS: GRPCError(Status.UNAVAILABLE, "etcdserver: no leader"),
    # As grpclib says it of a load balancer that has nobody to ask.
    PROXIED: GRPCError(Status.UNAVAILABLE, "Received :status = '503'"),
}
PAUSE_S = 10.0
"""Between two calls: as often a coordinator looks whether etcd went back."""


class ScriptedMember(Member):
    """Answers as of the cluster that `cluster` says, or with an error; or is dead or silent."""

    def __init__(self, name: str, cluster: Callable[[], int]) -> None:
        super().__init__(name, 1, None)
        self._cluster = cluster

    async def ask(
        self, path: str, request: WireMessage, answer: type[A], token: str, deadline_s: float
    ) -> A:
        cluster = self._cluster()
        if cluster == SILENT:
            await anyio.sleep(deadline_s)
        if cluster in (SILENT, DEAD):
            raise Unanswered(f"{self.address} does not answer", sent=False)
        if cluster in ERRORS:
            raise told(ERRORS[cluster], self.address, deadline_s)
        found = RangeResponse(header=ResponseHeader(cluster_id=cluster, revision=1))
        assert isinstance(found, answer)
        return found


class World:
    """Endpoints whose clusters a test changes, and who asks them."""

    def __init__(self, *clusters: int) -> None:
        self.clusters = list(clusters)
        names = [f"m{at}" for at in range(len(clusters))]
        self.asked = Members(etcd_place(f"etcd://{','.join(names)}/p"), None, str)
        self.asked._members = [
            ScriptedMember(name, lambda at=at: self.clusters[at])  # type: ignore[misc]
            for at, name in enumerate(names)
        ]

    async def answers(self) -> bool:
        """Whether a call is answered. Raises StoreWentBack."""
        try:
            await self.asked.call(RANGE, RangeRequest(key=b"k"), RangeResponse)
        except Unanswered:
            return False
        return True

    async def refused(self) -> tuple[float, str]:
        """After how long the store is refused, and what the error says."""
        began_s = anyio.current_time()
        with anyio.fail_after(10 * APART_S):
            while True:
                try:
                    assert not await self.answers()
                except StoreWentBack as error:
                    return anyio.current_time() - began_s, str(error)
                await anyio.sleep(PAUSE_S)


@pytest.mark.parametrize(
    "restored",
    [
        (OTHER, DEAD),
        (SILENT, OTHER),
        (OTHER, OTHER, DEAD),
        (DEAD, SILENT, OTHER),
        (SILENT, SILENT, SILENT, OTHER, SILENT),
        (PROXIED, OTHER),
    ],
)
def test_a_restored_cluster_is_refused_for_good_although_endpoints_are_dead(
    restored: tuple[int, ...],
) -> None:
    async def scenario() -> None:
        world = World(*[OWN] * len(restored))
        assert await world.answers()
        world.clusters[:] = restored
        took_s, told = await world.refused()
        # A call asks three silent endpoints: of five, not each call meets the one that answers.
        assert APART_S <= took_s <= APART_S + 3 * (CALL_S + PAUSE_S)
        assert "no endpoint of cluster 1 has answered for 30 s" in told
        assert "start this process again, which then says what to do" in told
        world.clusters[:] = [OWN] * len(restored)
        with pytest.raises(StoreWentBack):
            await world.answers()

    run_seeded(1, scenario)


def test_a_restored_cluster_is_refused_although_its_members_come_one_by_one() -> None:
    async def scenario() -> None:
        world = World(OWN, OWN, OWN)
        assert await world.answers()
        world.clusters[:] = [DEAD, DEAD, OTHER]
        assert not await world.answers()
        world.clusters[:] = [OTHER, DEAD, DEAD]
        took_s, _ = await world.refused()
        assert took_s <= APART_S + 2 * (CALL_S + PAUSE_S)

    run_seeded(1, scenario)


def test_a_restart_of_the_own_members_beside_a_strange_endpoint_is_waited_for() -> None:
    async def scenario() -> None:
        world = World(OWN, OTHER, OWN)
        assert await world.answers()
        for _ in range(5):
            began_s = anyio.current_time()
            world.clusters[:] = [DEAD, OTHER, SILENT]
            while anyio.current_time() - began_s < APART_S - CALL_S:
                assert not await world.answers()
            world.clusters[:] = [OWN, OTHER, DEAD]
            assert await world.answers()

    run_seeded(1, scenario)


def test_a_strange_endpoint_that_is_met_seldom_refuses_nothing() -> None:
    """Nobody asked in between, so nobody knows what the own members would have said."""

    async def scenario() -> None:
        world = World(OWN, OTHER)
        assert await world.answers()
        for _ in range(5):
            world.clusters[0] = DEAD
            assert not await world.answers()
            await anyio.sleep(2 * APART_S)
        world.clusters[0] = OWN
        assert await world.answers()

    run_seeded(1, scenario)


def test_own_members_that_are_dead_alone_are_waited_for_without_end() -> None:
    async def scenario() -> None:
        world = World(OWN, OTHER)
        assert await world.answers()
        world.clusters[:] = [DEAD, OTHER]
        assert not await world.answers()
        world.clusters[:] = [DEAD, SILENT]  # nothing says any more that etcd is another one
        for _ in range(50):
            assert not await world.answers()
        world.clusters[:] = [OWN, SILENT]
        assert await world.answers()

    run_seeded(1, scenario)


def test_own_members_that_answer_errors_beside_a_strange_endpoint_are_waited_for() -> None:
    async def scenario() -> None:
        world = World(OWN, OTHER, OWN)
        assert await world.answers()
        world.clusters[:] = [LEADERLESS, OTHER, DEAD]
        began_s = anyio.current_time()
        while anyio.current_time() - began_s < 2 * APART_S:
            assert not await world.answers()
        world.clusters[0] = OWN
        assert await world.answers()

    run_seeded(1, scenario)


def test_errors_of_an_endpoint_found_in_another_cluster_hold_up_no_refusal() -> None:
    async def scenario() -> None:
        world = World(OWN, OTHER, OTHER)
        assert await world.answers()
        world.clusters[:] = [DEAD, OTHER, OTHER]
        assert not await world.answers()
        world.clusters[1] = LEADERLESS
        took_s, _ = await world.refused()
        assert took_s <= APART_S + 2 * (CALL_S + PAUSE_S)

    run_seeded(1, scenario)
