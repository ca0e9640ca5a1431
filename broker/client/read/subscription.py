"""Single messages of one vchannel, over Milvus's Consume."""

from collections.abc import Callable

from broker.client.errors import OutOfRange, ServerRefusal
from broker.client.message import Batch
from broker.client.net.connection import Conversation
from broker.client.net.control_messages import CONSUME, create_consumer
from broker.client.net.waits import SILENT_S
from broker.client.read.decoder import Decoder, MessageFilter
from broker.client.read.deliveries import Deliveries
from broker.client.read.resuming_reader import SILENCE_S, Held
from broker.client.read.vchannel_progress import VChannelProgress
from broker.model.failure import StreamingCode
from broker.model.position import DeliverFilter, MessageTypes, StartFrom
from schemas.wire import Created, scan_consume_response


class Subscription:
    """One reader of one vchannel: what to ask of each stream, and what its answers mean."""

    path = CONSUME
    quiet_s = SILENT_S

    def __init__(self, wanted: MessageFilter, progress: VChannelProgress) -> None:
        self.pchannel = wanted.pchannel
        self.channels = wanted.channels
        self.bounded = wanted.end is not None
        self._wanted = wanted
        self._progress = progress
        self._decoder = Decoder(wanted, progress)

    @property
    def done(self) -> bool:
        return self._decoder.done

    def accepts(self, first: bytes) -> bool:
        return isinstance(scan_consume_response(first), Created)

    def request(self) -> bytes:
        policy, tick_filter = self._progress.resume()
        filters: list[DeliverFilter] = [] if tick_filter is None else [tick_filter]
        if self._wanted.types is not None:
            filters.append(MessageTypes(self._wanted.types))
        wanted = self._wanted
        return create_consumer(wanted.vchannel, policy, filters, ignore_pause=wanted.ignore_pause)

    async def deliver(
        self,
        stream: Conversation,
        frames: list[bytes],
        deliveries: Deliveries[Batch],
        heard: Callable[[], None],
    ) -> None:
        while True:
            before = self._passed
            batch = self._decoder.feed(frames)
            if batch is not None:
                await deliveries.put([batch])
            # Also what brings no message is new, such as a tick; what a stream repeats is not.
            if batch is not None or self._passed != before:
                # After the put: the time that the program takes is no silence of the server.
                heard()
            # After the put, so that the tick is closed only once that batch was taken.
            deliveries.close_tick(self._decoder.closed_tick, self._decoder.from_id)
            if self._decoder.done:
                return
            frames = await stream.read(SILENCE_S)

    @property
    def _passed(self) -> tuple[int, int]:
        return self._decoder.closed_tick, self._decoder.from_id

    async def judge(self, error: ServerRefusal, held: Held) -> None:
        policy, _ = self._progress.resume()
        # Only a start by id can be out of range.
        if not isinstance(policy, StartFrom):
            raise error
        offsets = await held()
        # What is held is not known now: try another stream.
        if offsets is None:
            return
        next_unseen_id = self._progress.done_id + 1
        if next_unseen_id < offsets.first_id or policy.id > offsets.next_id:
            name = self._wanted.vchannel or self._wanted.pchannel
            raise OutOfRange(name, next_unseen_id, offsets.first_id, offsets.next_id) from error
        if policy.id >= offsets.first_id:
            if error.code is StreamingCode.UNRECOVERABLE and self._progress.begin_anew():
                return
            raise error
        # Retention removed the id to resume from, but every removed message was delivered already.
        self._progress.restart()
