"""Serve one Consume stream: one consumer, fed as fast as it reads and no faster.

A batch is pulled only when the peer's HTTP/2 window has room for it, so a consumer that stops
reading holds no memory here. The consumer's cursor is kept here, so a Scanner that was restarted is
asked again from the same place.
"""

from typing import Final

import anyio

from broker.core.security.grants import Action
from broker.edge.milvus.consumer_request import consumer_request
from broker.edge.milvus.single_messages import framed_slice
from broker.edge.milvus.tick_frames import TickFrames
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.middleware import Call, first_messages
from broker.edge.rpc.proxies import Proxy
from broker.edge.rpc.read_pace import ReadPace
from broker.edge.rpc.request_metadata import consumer_channel
from broker.edge.rpc.scanner_proxy import ScannerProxy
from broker.edge.rpc.stream_meters import StreamMeter
from broker.model.failure import invalid_argument
from broker.model.ids import TimeTick
from broker.model.message import ClosedTick, Delivered, DeliveredInTxn
from broker.model.record import RecordSlice
from broker.node.directory_messages import Locate, OpenScanner, ScannerOpened
from broker.node.scanner_messages import Delivery
from broker.transport import ServerBatchStream
from schemas.encoding.frames import frame
from schemas.generated.milvus.proto.streaming import (
    CloseConsumerResponse,
    ConsumeRequest,
    ConsumeResponse,
    CreateConsumerResponse,
    CreateVChannelConsumerResponse,
)
from schemas.properties.txn_context import TxnContext
from schemas.wire import CONSUMER_ID, consume_in_txn, consume_message

CONSUME: Final = frozenset({Action.CONSUME})
CLOSE: Final = bytes(ConsumeResponse(close=CloseConsumerResponse()))


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
        """Serve one stream from its handshake to its end.

        Raises Refused: INVALID_ARGUMENT for a bad header or request, else as `Locate` and
        `OpenScanner` refuse.
        """
        channel = consumer_channel(call.metadata)
        # A wrong node or term is refused before `create`, by which a client knows the owner.
        await self.directory.demand(Locate(channel.name, channel.term))
        await call.stream.write_batch([self._created])
        within_s = self.limits.idle_peer_s
        first = await first_messages(call.stream, within_s, "create_vchannel_consumer")
        # A client that half-closed at once gets an orderly end.
        if first:
            request = (await call.reader.read(first[0], ConsumeRequest)).create_vchannel_consumer
            if request is None:
                raise invalid_argument(
                    "the first request of a Consume stream must be create_vchannel_consumer"
                )
            call.audited.request = request
            wanted = consumer_request(request, channel.name)
            await call.access.need_channel(CONSUME, wanted.vchannel or channel.name)
            opening = OpenScanner(
                channel.name,
                channel.term,
                wanted.vchannel,
                wanted.policy,
                wanted.filters,
                wanted.ignores_pause,
            )
            pace = ReadPace(call, wanted.vchannel or channel.name)
            meters, quotas = call.meters, call.quotas
            with meters.consuming(channel.name) as meter, quotas.stream_of(call.identity):
                # Only within the limit: nobody would close the Scanner of a refused stream.
                opened = await self.directory.demand(opening)
                stream = ConsumeStream(call.stream, self, opening, opened, pace)
                await stream.run(self._consumer_created, meter)
        await call.stream.write_batch([CLOSE], deadline_s=self.limits.flush_s)


class ConsumeStream:
    """A consumer after its handshake."""

    __slots__ = (
        "_cursor", "_feeding", "_newest_tick", "_opening", "_pace", "_scanner", "_shared",
        "_stream",
    )  # fmt: skip

    def __init__(
        self,
        stream: ServerBatchStream,
        shared: ConsumerStreams,
        opening: OpenScanner,
        opened: ScannerOpened,
        pace: ReadPace,
    ) -> None:
        self._pace = pace
        self._stream = stream
        self._shared = shared
        self._opening = opening
        self._scanner = ScannerProxy(shared.directory, opening, opened.scanner)
        self._cursor = opened.cursor
        self._newest_tick = TimeTick(0)
        self._feeding = anyio.CancelScope()

    async def run(self, created: bytes, meter: StreamMeter) -> None:
        """Run until the client half-closes. Raises Refused when its Scanner cannot be restarted."""
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
        """Skip further requests: none of them has a meaning on this stream."""
        while await self._stream.read_batch():
            pass
        self._feeding.cancel()

    async def _feed(self, meter: StreamMeter) -> None:
        credit_max = self._shared.limits.consume_credit_bytes
        while True:
            # Room first: what is pulled has to be held until it can be written.
            room = await self._stream.room()
            delivery = await self._scanner.pull(self._cursor, min(room, credit_max))
            await self._pace.wait(delivery.items)
            framed = self._framed(delivery)
            if framed:
                await self._stream.write_framed(framed)
                meter.consumed_bytes += len(framed)
            self._cursor = delivery.cursor

    def _framed(self, delivery: Delivery) -> bytes:
        framed_tick = self._shared.ticks.framed
        channel = self._opening.name
        # The newest tick closes all items of the delivery, so it is sent behind them.
        closed = self._new_tick(delivery)
        if not delivery.items:
            return framed_tick(channel, closed) if closed else b""
        parts: list[bytes] = []
        for item in delivery.items:
            if isinstance(item, RecordSlice):
                parts.append(framed_slice(item))
            elif isinstance(item, DeliveredInTxn):
                parts.append(frame(_in_txn(item)))
            elif isinstance(item, Delivered):  # a commit
                where = item.id, item.tick, item.last_confirmed_id, item.term
                parts.append(frame(consume_message(*where, item.body)))
            else:
                # A stored tick: it may pass no message before it.
                parts.append(framed_tick(channel, item))
        if closed:
            parts.append(framed_tick(channel, closed))
        return b"".join(parts)

    def _new_tick(self, delivery: Delivery) -> ClosedTick | None:
        """The delivery's closed tick if it has grown; a Scanner repeats one that has not."""
        closed = delivery.tick
        if closed is None or closed.tick <= self._newest_tick:
            return None
        self._newest_tick = closed.tick
        return closed


def _in_txn(item: DeliveredInTxn) -> bytes:
    begins = b""
    if item.begins is not None:
        begins = TxnContext(item.begins.id, item.begins.keepalive_ms).encode()
    return consume_in_txn(item.id, item.tick, item.last_confirmed_id, item.term, item.body, begins)
