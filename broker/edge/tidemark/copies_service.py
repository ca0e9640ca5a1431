"""tidemark.v1.Copies: the coordinator appends to a log of this node, and orders its segments.

It appends copies of broadcasts, and commands about staged transactions.
"""

from collections.abc import Mapping

from grpclib.const import Handler

from actors import ActorError
from broker.codec.broadcast_copies import APPEND_S
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import CollectionId, PChannelName, SegmentId, TxnId
from broker.model.master.reservation import SegmentOrders
from broker.model.message import Appended, NewMessage
from broker.model.stage import StageName
from broker.model.txn import TxnContext
from broker.node.append.intake import append
from broker.node.appender_messages import ObeySegmentOrders
from broker.node.directory_messages import Locate
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Copies/"


class CopiesService:
    """Append, OrderSegments."""

    def __init__(self, middleware: Middleware, directory: Proxy) -> None:
        self._middleware = middleware
        self._directory = directory

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Append": middleware.unary(v1.AppendCopiesRequest, self.append),
            SERVICE + "OrderSegments": middleware.unary(
                v1.OrderSegmentsRequest, self.order_segments
            ),
        }

    async def append(self, request: v1.AppendCopiesRequest) -> v1.AppendCopiesResponse:
        """Append. INVALID_ARGUMENT without copies; CHANNEL_NOT_EXIST when it is not served here."""
        if not request.pchannel or not request.copies:
            raise invalid_argument("the pchannel or the copies are missing; set both")
        located = await self._directory.demand(
            # Any term: the coordinator means whoever owns the pchannel now.
            Locate(PChannelName(request.pchannel), None, writes=True)
        )
        messages = tuple([_message(it) for it in request.copies])
        outcomes = await append(located, messages, deadline_s=APPEND_S)
        return v1.AppendCopiesResponse(outcomes=[_encoded(it) for it in outcomes])

    async def order_segments(self, request: v1.OrderSegmentsRequest) -> v1.OrderSegmentsResponse:
        """Hand orders to the owner. CHANNEL_NOT_EXIST when the pchannel is not served here."""
        located = await self._directory.demand(
            Locate(PChannelName(request.pchannel), None, writes=True)
        )
        orders = SegmentOrders(
            binlogs=tuple([(SegmentId(it.segment_id), it.binlogs) for it in request.binlogs]),
            seal=tuple(map(SegmentId, request.seal)),
            seal_collections=tuple(map(CollectionId, request.seal_collections)),
        )
        try:
            located.appender.tell(ObeySegmentOrders(orders))
        except ActorError as error:
            raise Refused(StreamingCode.INNER, f"{request.pchannel}: {error}") from error
        return v1.OrderSegmentsResponse()


def _message(it: v1.CopyToAppend) -> NewMessage:
    stage = it.stage
    return NewMessage(
        vchannel=it.vchannel,
        type=it.type,
        body=it.body,
        size=it.size,
        txn=TxnContext(TxnId(it.txn_id), 0) if it.txn_id else None,
        pchannel_level=it.pchannel_level,
        stage=None if stage is None else _stage(stage),
    )


def _stage(it: v1.StageId) -> StageName:
    return StageName(it.app, it.batch, it.part, it.attempt)


def _encoded(outcome: Appended | Refusal) -> v1.AppendedCopy:
    if isinstance(outcome, Refusal):
        return v1.AppendedCopy(code=int(outcome.code), cause=outcome.cause)
    return v1.AppendedCopy(
        message_id=outcome.id,
        time_tick=outcome.tick,
        last_confirmed_id=outcome.last_confirmed_id,
    )
