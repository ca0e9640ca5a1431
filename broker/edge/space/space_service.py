"""tidemark.v1.Space: purges of the vchannels that this node serves."""

from collections.abc import Mapping
from typing import Final

from grpclib.const import Handler

from broker.core.naming import pchannel_of
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxies
from broker.model.failure import invalid_argument
from broker.model.ids import MessageId, TimeTick
from broker.node.directory_messages import Locate
from broker.node.space.purging import PurgeVChannel
from schemas.generated.tidemark import v1

SERVICE: Final = "/tidemark.v1.Space/"
PURGE_S: Final = 60.0


class SpaceService:
    """Purge."""

    def __init__(self, middleware: Middleware, proxies: Proxies) -> None:
        self._middleware = middleware
        self._directory, self._purging = proxies.directory, proxies.purging

    def __mapping__(self) -> Mapping[str, Handler]:
        return {SERVICE + "Purge": self._middleware.unary(v1.PurgeRequest, self.purge)}

    async def purge(self, request: v1.PurgeRequest) -> v1.PurgeResponse:
        """See `PurgeVChannel`."""
        if not request.vchannel:
            raise invalid_argument("the vchannel's name is empty")
        if request.upto_tick is None and request.before_id is None:
            raise invalid_argument("the purge has no end; name a tick or a message id")
        if (request.before_id or 0) < 0 or request.before_id == 0:
            raise invalid_argument(f"before_id is {request.before_id}; message ids begin at 1")
        # For its refusal, which tells clients where the pchannel is.
        await self._directory.demand(Locate(pchannel_of(request.vchannel), None))
        upto, before_id = TimeTick(request.upto_tick or 0), MessageId(request.before_id or 0)
        purge = PurgeVChannel(request.vchannel, upto, before_id, only_check=request.only_check)
        done = await self._purging.demand(purge, deadline_s=PURGE_S)
        return v1.PurgeResponse(vchannel=done.vchannel, upto_tick=done.upto, next_id=done.next_id)
