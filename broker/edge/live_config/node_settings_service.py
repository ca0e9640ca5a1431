"""tidemark.v1.NodeSettings: the coordinator has a node fetch newer settings with its lease."""

from collections.abc import Mapping
from typing import Final

from grpclib.const import Handler

from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.node.membership.membership import RefreshSettings
from schemas.generated.tidemark import v1

SERVICE: Final = "/tidemark.v1.NodeSettings/"


class NodeSettingsService:
    """Refresh."""

    def __init__(self, middleware: Middleware, membership: Proxy) -> None:
        self._middleware = middleware
        self._membership = membership

    def __mapping__(self) -> Mapping[str, Handler]:
        unary = self._middleware.unary
        return {SERVICE + "Refresh": unary(v1.RefreshSettingsRequest, self.refresh)}

    async def refresh(self, request: v1.RefreshSettingsRequest) -> v1.RefreshSettingsResponse:
        """The revision in effect after a renewal, which may still be an older one."""
        revision = await self._membership.ask(RefreshSettings(request.revision))
        return v1.RefreshSettingsResponse(revision=revision)
