"""Plans the requests that got their keys together, one after another."""

from collections.abc import Mapping

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

PLAN_S = 10.0


async def planned(
    admitted: Mapping[LockTicket, WaitingBroadcast], planner: BroadcastPlanner, clock: Clock
) -> tuple[dict[LockTicket, Broadcast], dict[LockTicket, Refused]]:
    """The broadcast of each request, or why it is refused; in order."""
    ready: dict[LockTicket, Broadcast] = {}
    refused: dict[LockTicket, Refused] = {}
    for ticket, waiting in admitted.items():
        request = waiting.request
        if isinstance(request, Broadcast):
            ready[ticket] = request
            continue
        try:
            # In turn: each sees the ids and places that those before it have taken.
            ready[ticket] = await _plan(request, planner, clock)
        except Refused as error:
            refused[ticket] = error
        except MetaError as error:
            refused[ticket] = Refused(StreamingCode.INNER, f"nothing has changed: {error}")
    return ready, refused


async def _plan(request: PlannedRequest, planner: BroadcastPlanner, clock: Clock) -> Broadcast:
    found: list[Broadcast] = []
    # It holds up every other broadcast, so a store that hangs must not hold it for ever.
    with deadline(clock, PLAN_S):
        found.append(await planner.plan(request))
    if not found:
        cause = f"nothing has changed: no plan within {PLAN_S:.0f} s; try again"
        raise Refused(StreamingCode.INNER, cause)
    if problem := record_problem(found[0]):
        planner.finished(request.request_key)
        raise invalid_argument(problem)
    return found[0]
