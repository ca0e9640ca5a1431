"""One Consume stream: one consumer, fed as fast as it reads and never faster.

Owns the consumer's cursor and nothing else: a batch is pulled only when the peer's HTTP/2 window
has room for it, so that a consumer which stops reading holds no memory here, and a Scanner that
was restarted is asked again from the same cursor.
"""

from typing import Final

import anyio

from broker.edge.milvus.consumer_request import consumer_request
from broker.edge.milvus.single_messages import consume_slice
from broker.edge.milvus.tick_frames import TickFrames
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.failures import timed_out
from broker.edge.rpc.middleware import Call, decoded
from broker.edge.rpc.proxies import Proxy
from broker.edge.rpc.request_metadata import consumer_channel
from broker.edge.rpc.scanner_proxy import ScannerProxy
from broker.edge.rpc.stream_meters import StreamMeter
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import TimeTick
from broker.model.message import ClosedTick, Delivered, DeliveredInTxn
from broker.model.record import RecordSlice
from broker.node.directory_messages import Locate, OpenScanner, ScannerOpened
from broker.node.scanner_messages import Delivery
from broker.transport import ServerBatchStream
from schemas.encoding.frames import frames
from schemas.generated.milvus.proto.streaming import (
    CloseConsumerResponse,
    ConsumeRequest,
    ConsumeResponse,
    CreateConsumerResponse,
    CreateVChannelConsumerResponse,
)
from schemas.properties.txn_context import TxnContext
from schemas.wire import CONSUMER_ID, consume_in_txn, consume_message

CLOSE: Final = bytes(ConsumeResponse(close=CloseConsumerResponse()))
CREDIT_BYTES_MIN: Final = 32 * 1024
"""Asked for even when the window holds less, so that small windows do not make tiny batches."""


class ConsumerStreams:
    """What all Consume streams of a server share."""

    def __init__(
        self, directory: Proxy, ticks: TickFrames, wal_name: str, limits: EdgeLimits
    ) -> None:
        self.directory = directory
        self.ticks = ticks
        self.limits = limits
        self._created = bytes(ConsumeResponse(create=CreateConsumerResponse(wal_name=wal_name)))
        self._consumer_created = bytes(
            ConsumeResponse(create_vchannel=CreateVChannelConsumerResponse(consumer_id=CONSUMER_ID))
        )

    async def serve(self, call: Call) -> None:
        """The whole life of one stream; refusals of the header, `Locate` and `OpenScanner`."""
        channel = consumer_channel(call.metadata)
        await self.directory.demand(Locate(channel.name, channel.term))
        await call.stream.write_batch([self._created])
        first = await self._first_request(call.stream)
        if first:
            request = decoded(first[0], ConsumeRequest).create_vchannel_consumer
            if request is None:
                raise Refused(
                    StreamingCode.INVALID_ARGUMENT,
                    "the first request of a Consume stream must be create_vchannel_consumer",
                )
            wanted = consumer_request(request, channel.name)
            opening = OpenScanner(
                channel.name,
                channel.term,
                wanted.vchannel,
                wanted.policy,
                wanted.filters,
                wanted.ignores_pause,
            )
            opened = await self.directory.demand(opening)
            stream = ConsumeStream(call.stream, self, opening, opened)
            with call.meters.consuming(channel.name) as meter:
                await stream.run(self._consumer_created, meter)
        await call.stream.write_batch([CLOSE], deadline_s=self.limits.flush_s)

    async def _first_request(self, stream: ServerBatchStream) -> list[bytes]:
        """A client sends it at once; one that does not would hold its place for ever."""
        with anyio.move_on_after(self.limits.idle_peer_s):
            return await stream.read_batch()
        raise timed_out(f"no create_vchannel_consumer came within {self.limits.idle_peer_s:g} s")


class ConsumeStream:
    """The consumer after its handshake."""

    __slots__ = (
        "_cursor", "_feeding", "_opening", "_scanner", "_shared", "_stream", "_told",
    )  # fmt: skip

    def __init__(
        self,
        stream: ServerBatchStream,
        shared: ConsumerStreams,
        opening: OpenScanner,
        opened: ScannerOpened,
    ) -> None:
        self._stream = stream
        self._shared = shared
        self._opening = opening
        self._scanner = ScannerProxy(shared.directory, opening, opened.scanner)
        self._cursor = opened.cursor
        self._told = TimeTick(0)
        self._feeding = anyio.CancelScope()

    async def run(self, created: bytes, meter: StreamMeter) -> None:
        """Until the client half-closes. Raises Refused when the Scanner is gone for good."""
        try:
            await self._stream.write_batch([created])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_half_closed)
                with self._feeding:
                    await self._feed(meter)
                tasks.cancel_scope.cancel()
        finally:
            self._scanner.release()

    async def _until_half_closed(self) -> None:
        """Whatever else a client says on this stream has no meaning."""
        while await self._stream.read_batch():
            pass
        self._feeding.cancel()

    async def _feed(self, meter: StreamMeter) -> None:
        credit_max = self._shared.limits.consume_credit_bytes
        while True:
            room = await self._stream.room()
            credit = max(CREDIT_BYTES_MIN, min(room, credit_max))
            delivery = await self._scanner.pull(self._cursor, credit)
            framed = self._framed(delivery)
            if framed:
                await self._stream.write_framed(framed)
                meter.consumed_bytes += len(framed)
            self._cursor = delivery.cursor

    def _framed(self, delivery: Delivery) -> bytes:
        framed_tick = self._shared.ticks.framed
        channel = self._opening.name
        closed = self._news(delivery)
        if not delivery.items:
            return framed_tick(channel, closed) if closed else b""
        parts: list[bytes] = []
        run: list[bytes] = []
        for item in delivery.items:
            if isinstance(item, DeliveredInTxn):
                run.append(_in_txn(item))
            elif isinstance(item, RecordSlice):
                run += consume_slice(item)
            elif isinstance(item, Delivered):
                run.append(
                    consume_message(
                        item.id, item.tick, item.last_confirmed_id, item.term, item.body
                    )
                )
            else:
                parts += (frames(run), framed_tick(channel, item))
                run = []
        parts.append(frames(run))
        if closed:
            parts.append(framed_tick(channel, closed))
        return b"".join(parts)

    def _news(self, delivery: Delivery) -> ClosedTick | None:
        """A Scanner repeats a tick that stands still; Milvus's consumers hear only growing ones."""
        closed = delivery.tick
        if closed is None or closed.tick <= self._told:
            return None
        self._told = closed.tick
        return closed


def _in_txn(item: DeliveredInTxn) -> bytes:
    begins = b""
    if item.begins is not None:
        begins = TxnContext(item.begins.id, item.begins.keepalive_ms).encode()
    return consume_in_txn(item.id, item.tick, item.last_confirmed_id, item.term, item.body, begins)
