"""Plans the requests that got their keys together, one after another."""

from collections.abc import Mapping, Sequence
from typing import Final

from actors import Clock
from actors.clock import deadline
from broker.coordinator.broadcast.broadcast_records import record_problem
from broker.coordinator.broadcast.pending_broadcasts import WaitingBroadcast
from broker.core.cluster.resource_locks import LockTicket
from broker.model.broadcast import Broadcast
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.master.ddl import PlannedRequest
from broker.ports.master.broadcast_planner import BroadcastPlanner
from broker.ports.meta import MetaError

PLAN_S: Final = 10.0
TOGETHER: Final = 64
"""Plans whose records are read at once, and are in memory at once."""


async def planned(
    admitted: Mapping[LockTicket, WaitingBroadcast], planner: BroadcastPlanner, clock: Clock
) -> tuple[dict[LockTicket, Broadcast], dict[LockTicket, Refused]]:
    """The broadcast of each request, or why it is refused; in order."""
    ready: dict[LockTicket, Broadcast] = {}
    refused: dict[LockTicket, Refused] = {}
    to_plan: list[tuple[LockTicket, PlannedRequest]] = []
    for ticket, waiting in admitted.items():
        if isinstance(waiting.request, Broadcast):
            ready[ticket] = waiting.request
        else:
            to_plan.append((ticket, waiting.request))
    for start in range(0, len(to_plan), TOGETHER):
        some = to_plan[start : start + TOGETHER]
        try:
            unread = await _read_ahead([it for _, it in some], planner, clock)
            for ticket, request in some:
                # In turn: each sees the ids and places that those before it have taken.
                plan = unread or await _planned(request, planner, clock)
                if isinstance(plan, Refused):
                    refused[ticket] = plan
                else:
                    ready[ticket] = plan
        finally:
            planner.forget()
    return {ticket: ready[ticket] for ticket in admitted if ticket in ready}, refused


async def _read_ahead(
    requests: Sequence[PlannedRequest], planner: BroadcastPlanner, clock: Clock
) -> Refused | None:
    """Why none of these can be planned; None: their records are read."""
    try:
        with deadline(clock, PLAN_S) as scope:
            await planner.read_ahead(requests)
    except MetaError as error:
        return Refused(StreamingCode.INNER, f"nothing has changed: {error}")
    return _too_slow() if scope.cancelled_caught else None


async def _planned(
    request: PlannedRequest, planner: BroadcastPlanner, clock: Clock
) -> Broadcast | Refused:
    try:
        return await _plan(request, planner, clock)
    except Refused as error:
        return error
    except MetaError as error:
        return Refused(StreamingCode.INNER, f"nothing has changed: {error}")


async def _plan(request: PlannedRequest, planner: BroadcastPlanner, clock: Clock) -> Broadcast:
    found: list[Broadcast] = []
    # It holds up every other broadcast, so a store that hangs must not hold it for ever.
    with deadline(clock, PLAN_S):
        found.append(await planner.plan(request))
    if not found:
        raise _too_slow()
    if problem := record_problem(found[0]):
        planner.finished(request.request_key)
        raise invalid_argument(problem)
    return found[0]


def _too_slow() -> Refused:
    cause = f"nothing has changed: no plan within {PLAN_S:.0f} s; try again"
    return Refused(StreamingCode.INNER, cause)
