"""tidemark.v1.Log: append and read batches, and find positions in a log.

A vchannel is answered with the ids of its pchannel.
"""

from collections.abc import Mapping

import anyio
from grpclib.const import Handler

from broker.codec.stored_headers import StoredHeaders
from broker.core.naming import pchannel_of
from broker.core.time.span_count import SpanLimit
from broker.edge.rpc.middleware import Call, Middleware
from broker.edge.rpc.proxies import Proxy
from broker.edge.rpc.read_ticks import ReadTicks
from broker.edge.tidemark.append_batches import Admissions, serve_append
from broker.edge.tidemark.read_batches import serve_read
from broker.model.channel import ChannelOffsets
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.measured import MeasuredChannel
from broker.node.directory_messages import ChannelView, Describe, LatestMvcc, Locate, Located
from broker.node.queries.measure_channels import Question, measure_channels
from broker.ports.row_schemas import RowSchemas
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Log/"
SEARCH_S = 2.0
"""A search of a log for a vchannel ends after so long; the next question continues it."""


class LogService:
    """Append, Read, Describe, Seek, Advance, Measure, Mvcc, HasVChannel."""

    def __init__(self, middleware: Middleware, directory: Proxy, schemas: RowSchemas) -> None:
        self._middleware = middleware
        self._directory = directory
        self._admissions = Admissions(schemas, middleware.limits.message_bytes_max)
        self._read_ticks = ReadTicks()

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Append": middleware.streaming(self.append),
            SERVICE + "Read": middleware.streaming(self.read),
            SERVICE + "Describe": middleware.unary(v1.DescribeRequest, self.describe),
            SERVICE + "Seek": middleware.unary(v1.SeekRequest, self.seek),
            SERVICE + "Advance": middleware.unary(v1.AdvanceRequest, self.advance),
            SERVICE + "Measure": middleware.unary(v1.MeasureRequest, self.measure),
            SERVICE + "Mvcc": middleware.unary(v1.MvccRequest, self.mvcc),
            SERVICE + "HasVChannel": middleware.unary(v1.HasVChannelRequest, self.has_vchannel),
        }

    async def append(self, call: Call) -> None:
        """Serve a stream of batches to one pchannel."""
        await serve_append(call, self._directory, self._admissions, self._middleware.limits)

    async def read(self, call: Call) -> None:
        """Serve a stream of batches from one pchannel."""
        await serve_read(call, self._directory, self._middleware.limits, self._read_ticks)

    async def describe(self, request: v1.DescribeRequest) -> v1.DescribeResponse:
        """Describe channels, in the order of the request.

        With `served_only`, those that are not served here are left out; else they fail the call.
        """
        described = await self._directory.ask(Describe(tuple(request.channels)))
        return v1.DescribeResponse(
            channels=[
                _offsets(name, answer)
                for name, answer in zip(request.channels, described, strict=True)
                if not (request.served_only and isinstance(answer, Refusal))
            ]
        )

    async def seek(self, request: v1.SeekRequest) -> v1.SeekResponse:
        """The first message id whose tick is not below the given one."""
        view = await self._view(request.channel)
        return v1.SeekResponse(message_id=await view.seek(TimeTick(request.time_tick)))

    async def advance(self, request: v1.AdvanceRequest) -> v1.AdvanceResponse:
        """The id that about `bytes_max` bytes after `from_id` reach."""
        if request.from_id < 0 or request.until_id < request.from_id:
            raise invalid_argument(
                f"from_id {request.from_id} is not between 0 and until_id {request.until_id}"
            )
        view = await self._view(request.channel)
        end = await view.advance(
            MessageId(request.from_id), MessageId(request.until_id), max(1, request.bytes_max)
        )
        return v1.AdvanceResponse(message_id=end)

    async def measure(self, request: v1.MeasureRequest) -> v1.MeasureResponse:
        """See `measure_channels`. One tick in `after_ticks` counts for all channels."""
        afters = [TimeTick(it) for it in request.after_ticks]
        question = Question(
            request.channels,
            afters * len(request.channels) if len(afters) == 1 else afters,
            TimeTick(request.until_tick),
            SpanLimit(request.rows_max, request.bytes_max),
            (request.step_rows, request.step_bytes),
            request.together,
        )
        found = await measure_channels(self._located, StoredHeaders(), question)
        return v1.MeasureResponse(
            channels=[_measured(name, found.channels[name]) for name in request.channels],
            copies=[
                v1.BroadcastCopy(
                    broadcast_id=it.id, vchannel=it.vchannel, time_tick=it.tick, of=it.of
                )
                for it in found.copies
            ],
        )

    async def mvcc(self, request: v1.MvccRequest) -> v1.MvccResponse:
        """A tick that no durable data of the vchannel exceeds; only its owner answers."""
        if not request.vchannel:
            raise invalid_argument("the vchannel's name is empty")
        tick = await self._directory.demand(LatestMvcc(request.vchannel))
        return v1.MvccResponse(time_tick=tick)

    async def has_vchannel(self, request: v1.HasVChannelRequest) -> v1.HasVChannelResponse:
        """Whether a message of the log has named the vchannel. INNER while the log is searched."""
        view = await self._view(request.vchannel)
        with anyio.move_on_after(SEARCH_S):
            return v1.HasVChannelResponse(named=await view.has_vchannel(request.vchannel))
        cause = f"the log is still being searched for vchannel {request.vchannel!r}; ask again"
        raise Refused(StreamingCode.INNER, cause)

    async def _view(self, channel: str) -> ChannelView:
        if not channel:
            raise invalid_argument("the channel's name is empty")
        return (await self._located(pchannel_of(channel))).view

    async def _located(self, name: PChannelName) -> Located:
        return await self._directory.demand(Locate(name, None))


def _measured(name: str, found: MeasuredChannel) -> v1.MeasuredChannel:
    return v1.MeasuredChannel(
        channel=name,
        exact_tick=found.exact,
        first_ticks=[it.first_tick for it in found.steps],
        ticks=[it.tick for it in found.steps],
        rows=[it.rows for it in found.steps],
        bytes=[it.bytes for it in found.steps],
    )


def _offsets(name: str, answer: ChannelOffsets | Refusal) -> v1.ChannelOffsets:
    if isinstance(answer, Refusal):
        raise Refused(answer.code, answer.cause)
    return v1.ChannelOffsets(
        channel=name,
        first_id=answer.first_id,
        next_id=answer.next_id,
        closed_tick=answer.closed_tick,
        size_bytes=answer.size_bytes,
        term=answer.term,
        last_confirmed_id=answer.last_confirmed_id,
        open_txns=answer.open_txns,
        open_txn_bytes=answer.open_txn_bytes,
        checkpoint_id=answer.checkpoint.id if answer.checkpoint else 0,
        checkpoint_tick=answer.checkpoint.tick if answer.checkpoint else 0,
        growing_segments=answer.segments.growing,
        growing_bytes=answer.segments.growing_bytes,
        sealed_segments=answer.segments.sealed,
        observed_tick=answer.observed_tick,
        prepared_txns=answer.prepared_txns,
        removed_tick=answer.removed_tick,
        purged_tick=answer.purged_tick,
    )
