"""Decodes the frames of a Consume stream into batches for the reader.

Pure. It drops what the reader has seen, holds a transaction back until its commit, leaves out what
is no message of a program, and finds the end of a bounded read.
"""

from dataclasses import dataclass

from broker.client.batch_mark import BatchMark
from broker.client.batch_tick import BatchTick
from broker.client.errors import ProtocolBroken
from broker.client.message import Batch, Received
from broker.client.read.vchannel_progress import VChannelProgress
from broker.client.refusal_kinds import refusal
from broker.core.log.seen_broadcasts import SeenBroadcasts
from broker.core.naming import is_control_channel
from broker.model.ids import BroadcastId, MessageId, PChannelName, TimeTick, VChannelName
from broker.model.message import ANNOUNCED, SELF_CONTROLLED_TYPES, MessageType
from broker.model.named_cursor import ChannelPosition
from broker.model.retention.dead import PURGED_KINDS
from schemas.properties.broadcast_header import read_broadcast_id
from schemas.wire import Consumed, Malformed, VChannelRefused, scan_consume_response


@dataclass(frozen=True, slots=True)
class End:
    """Where a bounded read stops: before message `id`, or at a time tick not below `tick`.

    `tick` was closed when everything below `id` was durable, so both stop at the same place; the
    tick also ends a read that no message follows. A message with a larger tick is outside of the
    read, whatever its id: the messages of a transaction have the tick of its commit.
    """

    id: MessageId
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """What to read of one vchannel; an empty `vchannel` means the whole pchannel."""

    pchannel: PChannelName
    vchannel: VChannelName
    collection: str | None = None
    types: frozenset[int] | None = None
    with_ticks: bool = False
    end: End | None = None
    ignore_pause: bool = False

    @property
    def channels(self) -> tuple[str, ...]:
        """The one channel that is read."""
        return (self.vchannel or self.pchannel,)


class Decoder:
    """For one reader of one vchannel, over all its streams."""

    def __init__(self, wanted: MessageFilter, progress: VChannelProgress) -> None:
        self._wanted = wanted
        self._progress = progress
        self._broadcasts = SeenBroadcasts()
        self._txn: list[Received] = []
        """Messages of a transaction before its commit; kept when the stream breaks."""
        self.done = False
        """The end of a bounded read was reached."""

    @property
    def closed_tick(self) -> TimeTick:
        """No message with a tick up to it is still to come; never behind the end of the read."""
        closed_tick, end = self._progress.closed_tick, self._wanted.end
        return closed_tick if end is None else min(closed_tick, end.tick)

    @property
    def from_id(self) -> MessageId:
        """Every message with a smaller id was delivered, those of open transactions included."""
        from_id, end = MessageId(self._progress.done_id + 1), self._wanted.end
        return from_id if end is None else min(from_id, end.id)

    def feed(self, frames: list[bytes]) -> Batch | None:
        """The new messages in these frames; None when there is nothing to deliver.

        Raises ProtocolBroken on malformed bytes.
        """
        before_tick = self._progress.closed_tick
        messages: list[Received] = []
        try:
            for frame in frames:
                answer = scan_consume_response(frame)
                if isinstance(answer, Consumed):
                    self._take(answer, messages)
                    if self.done:
                        break
                elif isinstance(answer, VChannelRefused):
                    raise refusal(answer.code, answer.cause)
        except (Malformed, ValueError) as error:
            raise ProtocolBroken(f"{self._wanted.pchannel}: {error}") from error
        closed_tick = self.closed_tick
        if not messages and not (self._wanted.with_ticks and closed_tick > before_tick):
            return None
        last_tick = messages[-1].tick if messages else TimeTick(0)
        return Batch(
            self._wanted.vchannel,
            self._wanted.collection,
            messages,
            BatchTick(closed_tick, self._wanted.channels),
            BatchMark(ChannelPosition(max(last_tick, closed_tick), from_id=self.from_id)),
        )

    def _take(self, consumed: Consumed, messages: list[Received]) -> None:
        tags, tick = consumed.properties, TimeTick(consumed.tick)
        kind = int(tags.get("_t", "0"))
        in_txn = "_tx" in tags and kind != MessageType.COMMIT_TXN
        end = self._wanted.end
        # A transaction belongs to the range that holds its commit; a tick that is not stored has no
        # id of its own.
        if end is not None and not in_txn and consumed.message_id >= end.id and "_np" not in tags:
            if kind == MessageType.TIME_TICK and tick >= end.tick:
                # Stored behind the end, it closes what is before: the end too.
                self._progress.close(end.tick, min(MessageId(consumed.last_confirmed_id), end.id))
            self.done = True
            return
        if kind == MessageType.TIME_TICK:
            self._take_tick(consumed, tick, messages)
            return
        if end is not None and tick > end.tick:
            self.done = True
            return
        # Before the repeats of broadcasts are dropped: they are behind the reader, too.
        new = self._progress.admit(
            MessageId(consumed.message_id),
            tick,
            MessageId(consumed.last_confirmed_id),
            whole=not in_txn,
            stays=kind not in PURGED_KINDS,
        )
        if new and not ("_bh" in tags and self._is_repeat(consumed)):
            self._take_new(self._received(consumed, tick, kind), messages, in_txn=in_txn)

    def _take_new(self, message: Received, messages: list[Received], *, in_txn: bool) -> None:
        # No program wrote these; who needs them names their types.
        if self._wanted.types is None and _of_the_log(message):
            return
        if message.type == MessageType.COMMIT_TXN:
            messages += self._txn
            self._txn = []
        elif message.type == MessageType.BEGIN_TXN:
            # A transaction that is delivered again, on a new stream, starts from its begin.
            self._txn = []
        else:
            (self._txn if in_txn else messages).append(message)

    def _is_repeat(self, copy: Consumed) -> bool:
        """Whether a coordinator appended this copy again, after it died and was restarted."""
        broadcast_id = BroadcastId(read_broadcast_id(copy.properties["_bh"]))
        vchannel = copy.properties.get("_vc", "")
        return not self._broadcasts.is_first(vchannel, broadcast_id, copy.message_id)

    def _take_tick(self, consumed: Consumed, tick: TimeTick, messages: list[Received]) -> None:
        end = self._wanted.end
        new = self._progress.close(tick, MessageId(consumed.last_confirmed_id))
        self.done = end is not None and tick >= end.tick
        if new and self._wanted.with_ticks:
            messages.append(self._received(consumed, tick, MessageType.TIME_TICK))

    def _received(self, consumed: Consumed, tick: TimeTick, kind: int) -> Received:
        tags = consumed.properties
        vchannel, collection = tags.get("_vc", ""), self._wanted.collection
        id = MessageId(consumed.message_id)
        return Received(consumed.payload, id, tick, vchannel, collection, kind, tags)


def _of_the_log(message: Received) -> bool:
    """Whether the log wrote it, or reads it to know its collections."""
    if message.type in SELF_CONTROLLED_TYPES:
        return True
    return ANNOUNCED in message.tags and not is_control_channel(message.vchannel)
