"""Plans of requests that got their keys together: in turn, and within one limit."""

from collections.abc import Iterable, Sequence

import anyio

from actors.testing import VirtualClock, run_seeded
from broker.coordinator.broadcast.pending_broadcasts import WaitingBroadcast
from broker.coordinator.broadcast.plan_requests import PLAN_S, TOGETHER, planned
from broker.core.cluster.resource_locks import LockTicket
from broker.model.broadcast import Broadcast
from broker.model.failure import Refused, invalid_argument
from broker.model.ids import VChannelName
from broker.model.master.ddl import CreateDatabase, PlannedRequest
from broker.ports.meta import MetaError

Plans = tuple[dict[LockTicket, Broadcast], dict[LockTicket, Refused]]
HANGS, REFUSED, UNREAD, TOO_LARGE = "hangs", "refused", "unread", "too large"


class Planner:
    """Plans by the request's name; `unreadable`: reading ahead fails."""

    def __init__(self, *, unreadable: bool = False) -> None:
        self._unreadable = unreadable
        self.planned: list[str] = []
        self.over: list[str] = []
        self.forgotten = 0

    def restore(self, recorded: Iterable[Broadcast]) -> None:
        raise AssertionError(recorded)

    async def read_ahead(self, requests: Sequence[PlannedRequest]) -> None:
        assert len(requests) <= TOGETHER
        if self._unreadable:
            raise MetaError("the disk is full")

    def forget(self) -> None:
        self.forgotten += 1

    async def plan(self, request: PlannedRequest) -> Broadcast:
        name = request.request_key
        self.planned.append(name)
        if name == HANGS:
            await anyio.sleep_forever()
        if name == REFUSED:
            raise invalid_argument("there is one already")
        if name == UNREAD:
            raise MetaError("the disk is full")
        size = 2 << 20 if name == TOO_LARGE else 1
        keys = (VChannelName("v" * size),)
        return Broadcast(1, keys, (), b"", 0, name, "fingerprint")

    def finished(self, request_key: str) -> None:
        self.over.append(request_key)


def waiting(*names: str) -> dict[LockTicket, WaitingBroadcast]:
    requests = [PlannedRequest(CreateDatabase(it), (), it, "fingerprint") for it in names]
    return {LockTicket(at): WaitingBroadcast(it, [], 0.0) for at, it in enumerate(requests)}


async def test_each_is_planned_in_turn_and_one_that_is_refused_leaves_the_others_alone() -> None:
    planner = Planner()
    admitted = waiting("a", REFUSED, "b", UNREAD, "c", TOO_LARGE)
    given = Broadcast(1, (VChannelName("v"),), (), b"", 0, "given", "fingerprint")
    admitted[LockTicket(9)] = WaitingBroadcast(given, [], 0.0)
    ready, refused = await planned(admitted, planner, VirtualClock())
    assert planner.planned == ["a", REFUSED, "b", UNREAD, "c", TOO_LARGE]
    assert [it.request_key for it in ready.values()] == ["a", "b", "c", "given"]
    assert list(ready) == [0, 2, 4, 9]
    causes = {ticket: error.refusal.cause for ticket, error in refused.items()}
    assert causes[LockTicket(1)] == "there is one already"
    assert causes[LockTicket(3)] == "nothing has changed: the disk is full"
    assert "record of the broadcast" in causes[LockTicket(5)]
    assert planner.over == [TOO_LARGE]
    assert planner.forgotten == 1


def test_a_store_that_hangs_holds_up_others_for_the_limit_at_most() -> None:
    planner, clock = Planner(), VirtualClock()

    async def plan() -> tuple[Plans, float]:
        found = await planned(waiting("a", HANGS, "b"), planner, clock)
        return found, clock.monotonic_s()

    (ready, refused), took_s = run_seeded(1, plan, virtual_limit_s=2 * PLAN_S)
    assert took_s == PLAN_S
    assert list(ready) == [0]
    assert list(refused) == [1, 2]
    assert {it.refusal.cause for it in refused.values()} == {
        f"nothing has changed: no plan within {PLAN_S:.0f} s; try again"
    }
    assert planner.planned == ["a", HANGS]
    assert planner.forgotten == 1


async def test_what_cannot_be_read_ahead_is_refused_and_planned_by_nobody() -> None:
    planner = Planner(unreadable=True)
    ready, refused = await planned(waiting("a", "b"), planner, VirtualClock())
    assert not ready
    assert [it.refusal.cause for it in refused.values()] == [
        "nothing has changed: the disk is full"
    ] * 2
    assert not planner.planned
    assert planner.forgotten == 1
