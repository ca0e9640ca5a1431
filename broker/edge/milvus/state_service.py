"""StreamingNodeStateService: says whether this process serves."""

from collections.abc import Callable, Mapping
from enum import Enum

from grpclib.const import Handler

from broker.edge.rpc.middleware import Middleware
from broker.model.ids import NodeId
from schemas.generated.milvus.proto import common, milvus

SERVICE = "/milvus.proto.streaming.StreamingNodeStateService/"
ROLE = "streamingnode"
UNREGISTERED = -1


class ServerState(Enum):
    """The states of `tidemark.v1.Health`. DEGRADED: it serves, but not every pchannel,
    or it leads and may not answer now. STANDBY: a coordinator that does not lead."""

    STARTING = "starting"
    STANDBY = "standby"
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    STOPPING = "stopping"


_STATE_CODES = {
    ServerState.STARTING: common.StateCode.Initializing,
    ServerState.STANDBY: common.StateCode.StandBy,
    ServerState.HEALTHY: common.StateCode.Healthy,
    # Milvus has no such state. The process serves, so it is healthy to its peers.
    ServerState.DEGRADED: common.StateCode.Healthy,
    ServerState.STOPPING: common.StateCode.Stopping,
}


class StateService:
    """GetComponentStates."""

    def __init__(
        self, middleware: Middleware, node_id: NodeId, state: Callable[[], ServerState]
    ) -> None:
        self._middleware = middleware
        self._node_id = node_id
        self._state = state

    def __mapping__(self) -> Mapping[str, Handler]:
        return {
            SERVICE + "GetComponentStates": self._middleware.unary(
                milvus.GetComponentStatesRequest,
                self.component_states,
                while_draining=True,
                ungated=True,
            )
        }

    async def component_states(self, _: milvus.GetComponentStatesRequest) -> milvus.ComponentStates:
        """The state; the node id is -1 until the server serves, as in Milvus."""
        state = self._state()
        node_id = UNREGISTERED if state is ServerState.STARTING else self._node_id
        info = milvus.ComponentInfo(node_id=node_id, role=ROLE, state_code=_STATE_CODES[state])
        return milvus.ComponentStates(state=info, status=common.Status())
