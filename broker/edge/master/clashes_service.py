"""tidemark.v1.Master: clashes of changes by Milvus's clients with the meta table."""

from collections.abc import Mapping

from grpclib.const import Handler

from broker.edge.master.table_service import SERVICE, checked_limit
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxies
from broker.master.table.messages import ClearClashes
from broker.model.failure import Refused, StreamingCode
from broker.ports.meta import MetaError
from schemas.generated.tidemark import v1


class ClashesService:
    """ListClashes, ClearClashes."""

    def __init__(self, middleware: Middleware, proxies: Proxies) -> None:
        self._middleware = middleware
        self._proxies = proxies

    def __mapping__(self) -> Mapping[str, Handler]:
        unary = self._middleware.unary
        return {
            SERVICE + "ListClashes": unary(v1.ListClashesRequest, self.list),
            SERVICE + "ClearClashes": unary(v1.ClearClashesRequest, self.clear),
        }

    async def list(self, request: v1.ListClashesRequest) -> v1.ListClashesResponse:
        """A page of what could not be applied."""
        limit = checked_limit(request.limit)
        found = await self._proxies.meta_table.clashes(request.after, limit)
        return v1.ListClashesResponse(
            clashes=[v1.Clash(id=it.id, cause=it.cause) for it in found], more=len(found) == limit
        )

    async def clear(self, request: v1.ClearClashesRequest) -> v1.ClearClashesResponse:
        """INVALID_ARGUMENT: no id, or too many. An unknown one is no error."""
        try:
            unknown = await self._proxies.table_changes.ask(ClearClashes(tuple(request.ids)))
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error
        return v1.ClearClashesResponse(unknown_ids=list(unknown))
