"""tidemark.v1.Master: the component states."""

from collections.abc import Callable, Mapping
from typing import Final

from grpclib.const import Handler

from actors import ActorStatistics
from broker.core.master.component_health import (
    RUNNING,
    ActorState,
    Component,
    components,
    overall,
)
from broker.edge.master.allocation_service import SERVICE
from broker.edge.milvus.state_service import ServerState
from broker.edge.rpc.middleware import Middleware
from broker.edge.tidemark.process_view import ProcessView
from schemas.generated.tidemark import v1

ERROR: Final = "error"
"""The figure in which an actor says what is wrong with its work."""


class ComponentsService:
    """GetComponentStates."""

    def __init__(
        self, middleware: Middleware, state: Callable[[], ServerState], view: ProcessView
    ) -> None:
        self._middleware = middleware
        self._state = state
        self._view = view

    def __mapping__(self) -> Mapping[str, Handler]:
        handler = self._middleware.unary(
            v1.GetComponentStatesRequest, self.get_component_states, while_draining=True
        )
        return {SERVICE + "GetComponentStates": handler}

    async def get_component_states(
        self, _: v1.GetComponentStatesRequest
    ) -> v1.GetComponentStatesResponse:
        """The state of the master, and of each of its parts."""
        actors = {it.path: _actor_state(it) for it in self._view.tree.statistics()}
        parts = components(actors)
        state = self._state()
        reasons = list(self._view.reasons_against())
        if state is ServerState.STOPPING:
            reasons.append("the process is stopping")
        found = overall(parts, starting=state is ServerState.STARTING, reasons=reasons)
        return v1.GetComponentStatesResponse(
            state=_encoded(found), subcomponents=[_encoded(it) for it in parts]
        )


def _actor_state(entry: ActorStatistics) -> ActorState:
    error = str(entry.extra.get(ERROR, "")) if entry.state == RUNNING else entry.last_error
    return ActorState(entry.state, error, entry.term)


def _encoded(part: Component) -> v1.ComponentState:
    state = v1.ComponentStateCode(int(part.code))
    return v1.ComponentState(name=part.name, state=state, cause=part.cause)
