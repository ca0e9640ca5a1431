"""One reader of one vchannel: keeps a Consume stream open and goes on where the last one ended.

It owns the stream's reopening; where to go on is decided in `progress.py`. It reads no further
than its taker takes: the stream's window is all that may be on the way.
Next: broker/client/read/decoder.py
"""

import anyio

from broker.client.cluster.offsets import Offsets
from broker.client.errors import (
    BadTarget,
    OutOfRange,
    ProtocolBroken,
    ServerRefusal,
    TidemarkError,
)
from broker.client.message import Batch
from broker.client.net.assignment_table import Location
from broker.client.net.backoff import FOLLOWED_MS_MAX, Backoff
from broker.client.net.connection import Conversation
from broker.client.net.milvus_frames import CONSUME, consumer_metadata, create_consumer
from broker.client.net.network import Network
from broker.client.net.retry_rules import ends_reader, is_wrong_node
from broker.client.read.decoder import Decoder, MessageFilter
from broker.client.read.lane import Lane
from broker.client.read.vchannel_progress import VChannelProgress
from broker.model.position import DeliverFilter, MessageTypes, StartFrom
from schemas.wire import Created, scan_consume_response

SILENCE_S = 30.0
"""An idle server still sends a time tick every 200 ms; without any the stream is taken for dead."""

WRITE_S = 5.0


class Subscription:
    """Use once: `run` hands over batches until the end of a bounded read, or for ever."""

    def __init__(
        self, network: Network, offsets: Offsets, wanted: MessageFilter, progress: VChannelProgress
    ) -> None:
        self._network = network
        self._offsets = offsets
        self._wanted = wanted
        self._progress = progress
        self._decoder = Decoder(wanted, progress)
        self._backoff = Backoff(max_ms=FOLLOWED_MS_MAX)
        self._heard_s = 0.0

    async def run(self, lane: Lane[Batch]) -> None:
        """Hand every message over once and in order, over as many streams as it takes.

        Raises OutOfRange when retention was faster than the reader, and what the server refuses
        for good. Everything else is tried again: for ever, but for a bounded read only until
        nothing has come for `give_up_s`; then it raises what the last try ended with.
        """
        self._heard_s = anyio.current_time()
        while not self._decoder.done:
            location = None
            try:
                location = await self._network.assignments.locate(
                    self._wanted.pchannel, deadline_s=self._network.open_s
                )
                await self._consume(location, lane)
            except (BadTarget, ProtocolBroken):
                raise
            except ServerRefusal as error:
                await self._judge(error, location)
                self._give_up_late(error)
            except TidemarkError as error:
                self._give_up_late(error)
            if not self._decoder.done:
                await self._pause(location)

    async def _consume(self, location: Location, lane: Lane[Batch]) -> None:
        """One stream, from its opening to its end."""
        connection = self._network.connection(location.address)
        metadata = consumer_metadata(location.channel, location.node)
        open_s = self._network.open_s
        async with connection.converse(CONSUME, metadata, deadline_s=open_s) as stream:
            first, *frames = await stream.read(open_s)
            if not isinstance(scan_consume_response(first), Created):
                raise ProtocolBroken(f"{connection.address}: a Consume stream began with no create")
            await stream.write(self._request(), WRITE_S)
            await self._hand_over(stream, frames, lane)

    async def _hand_over(
        self, stream: Conversation, frames: list[bytes], lane: Lane[Batch]
    ) -> None:
        while True:
            batch = self._decoder.feed(frames)
            if batch is not None:
                self._backoff = self._backoff.succeeded()
                self._heard_s = anyio.current_time()
                await lane.give([batch])
            lane.close(self._decoder.closed_tick)
            if self._decoder.done:
                return
            frames = await stream.read(SILENCE_S)

    def _give_up_late(self, error: TidemarkError) -> None:
        silent_s = anyio.current_time() - self._heard_s
        if self._wanted.end is not None and silent_s > self._network.give_up_s:
            raise error

    def _request(self) -> bytes:
        policy, tick_filter = self._progress.resume()
        filters: list[DeliverFilter] = [] if tick_filter is None else [tick_filter]
        if self._wanted.types is not None:
            filters.append(MessageTypes(self._wanted.types))
        wanted = self._wanted
        return create_consumer(wanted.vchannel, policy, filters, ignore_pause=wanted.ignore_pause)

    async def _judge(self, error: ServerRefusal, location: Location | None) -> None:
        """Raises when another stream would be refused as well."""
        if location is not None and is_wrong_node(error.code):
            self._network.assignments.report(location.channel, error)
        if not ends_reader(error.code):
            return
        policy, _ = self._progress.resume()
        if not isinstance(policy, StartFrom):
            raise error
        try:
            described = await self._offsets.describe([self._wanted.pchannel])
        except TidemarkError as unanswered:
            if unanswered.retriable:
                return  # the next stream will be refused alike, and the question asked again
            raise
        held = described[self._wanted.pchannel]
        next_unseen_id = self._progress.done_id + 1
        if next_unseen_id < held.first_id or policy.id > held.next_id:
            name = self._wanted.vchannel or self._wanted.pchannel
            raise OutOfRange(name, next_unseen_id, held.first_id, held.next_id) from error
        if policy.id >= held.first_id:
            raise error
        self._progress.restart()

    async def _pause(self, location: Location | None) -> None:
        self._backoff = self._backoff.failed()
        if location is not None:
            delay_s = self._backoff.delay_s(self._network.spread.random())
            await self._network.assignments.wait_change(location.channel, delay_s)
