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
"""For those whose records are read at once, together."""
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
        plans = await _planned_together(to_plan[start : start + TOGETHER], planner, clock)
        for ticket, plan in plans.items():
            if isinstance(plan, Refused):
                refused[ticket] = plan
            else:
                ready[ticket] = plan
    return {ticket: ready[ticket] for ticket in admitted if ticket in ready}, refused


async def _planned_together(
    some: Sequence[tuple[LockTicket, PlannedRequest]], planner: BroadcastPlanner, clock: Clock
) -> dict[LockTicket, Broadcast | Refused]:
    plans: dict[LockTicket, Broadcast | Refused] = {}
    rest = _too_slow()
    try:
        # They hold up every other broadcast, so a store that hangs must not hold them for ever.
        with deadline(clock, PLAN_S):
            await planner.read_ahead([request for _, request in some])
            for ticket, request in some:
                # In turn: each sees the ids and places that those before it have taken.
                plans[ticket] = await _planned(request, planner)
    except MetaError as error:
        rest = _unread(error)
    finally:
        planner.forget()
    return {ticket: plans.get(ticket, rest) for ticket, _ in some}


async def _planned(request: PlannedRequest, planner: BroadcastPlanner) -> Broadcast | Refused:
    try:
        return await _plan(request, planner)
    except Refused as error:
        return error
    except MetaError as error:
        return _unread(error)


async def _plan(request: PlannedRequest, planner: BroadcastPlanner) -> Broadcast:
    found = await planner.plan(request)
    if problem := record_problem(found):
        planner.finished(request.request_key)
        raise invalid_argument(problem)
    return found


def _unread(error: MetaError) -> Refused:
    return Refused(StreamingCode.INNER, f"nothing has changed: {error}")


def _too_slow() -> Refused:
    cause = f"nothing has changed: no plan within {PLAN_S:.0f} s; try again"
    return Refused(StreamingCode.INNER, cause)
