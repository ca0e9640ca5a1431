"""tidemark.v1.Wal: switches of the log between segment files and Kafka."""

from collections.abc import Mapping
from typing import Final

from grpclib.const import Handler

from broker.edge.rpc.log_altering import LogAltering
from broker.edge.rpc.middleware import Middleware
from schemas.generated.tidemark import v1

SERVICE: Final = "/tidemark.v1.Wal/"


class WalService:
    """Alter, Status, Abort."""

    def __init__(self, middleware: Middleware, altering: LogAltering) -> None:
        self._middleware, self._altering = middleware, altering

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Alter": middleware.unary(v1.AlterWalRequest, self.alter),
            SERVICE + "Status": middleware.unary(v1.WalStatusRequest, self.status),
            SERVICE + "Abort": middleware.unary(v1.AbortWalRequest, self.abort),
        }

    async def alter(self, request: v1.AlterWalRequest) -> v1.WalStatusResponse:
        """See LogAltering."""
        await self._altering.begin(request.target, leaves_history=request.leaves_history)
        return await self._status()

    async def status(self, _: v1.WalStatusRequest) -> v1.WalStatusResponse:
        """See LogAltering."""
        return await self._status()

    async def abort(self, _: v1.AbortWalRequest) -> v1.WalStatusResponse:
        """See LogAltering."""
        await self._altering.abort()
        return await self._status()

    async def _status(self) -> v1.WalStatusResponse:
        found = await self._altering.state()
        if found.alter is None:
            return v1.WalStatusResponse(place=found.founded)
        alter = found.alter
        return v1.WalStatusResponse(
            place=alter.place,
            stage=alter.stage.name.lower(),
            source=alter.source,
            target=alter.target,
            leaves_history=alter.leaves_history,
            channels=[
                v1.WalStatusOfChannel(
                    pchannel=name,
                    copied_id=it.copied_id,
                    checked_id=it.checked_id,
                    next_id=it.source_id,
                    switched=it.switched,
                    ended=it.ended,
                    trouble=it.trouble,
                )
                for name, it in sorted(found.channels.items())
            ],
        )
