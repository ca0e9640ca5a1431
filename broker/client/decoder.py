"""Turns the frames of a Consume stream into batches for the reader.

Pure. It drops what the reader has seen, hides what is not a message, and knows where a bounded
read ends. Next: broker/client/progress.py
"""

from dataclasses import dataclass

from broker.client.errors import ProtocolBroken, refusal
from broker.client.message import Batch, Received
from broker.client.progress import Progress
from broker.model.ids import MessageId, PChannelName, TimeTick, VChannelName
from broker.model.message import TXN_TYPES, MessageType
from schemas.wire import Consumed, Malformed, VChannelRefused, scan_consume_response


@dataclass(frozen=True, slots=True)
class End:
    """Where a bounded read stops: before message `id`, or at a time tick not below `tick`.

    `tick` was closed when everything below `id` was durable, so both stop at the same place, and
    the second one also where no message follows. What has a larger tick does not belong to the
    read, whatever its id: a transaction is at the tick of its commit.
    """

    id: MessageId
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one reader wants of one vchannel; an empty `vchannel` is the whole pchannel."""

    pchannel: PChannelName
    vchannel: VChannelName
    collection: str | None = None
    types: frozenset[int] | None = None
    with_ticks: bool = False
    end: End | None = None


class Decoder:
    """For one reader of one vchannel, over all its streams."""

    def __init__(self, wanted: Wanted, progress: Progress) -> None:
        self._wanted = wanted
        self._progress = progress
        self.done = False
        """The end of a bounded read was reached; nothing after it is handed over."""

    def feed(self, frames: list[bytes]) -> Batch | None:
        """The new messages in these frames; None when there is nothing to hand over.

        Raises ProtocolBroken on bytes that mean nothing.
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
        closed_tick = self._progress.closed_tick
        if not messages and not (self._wanted.with_ticks and closed_tick > before_tick):
            return None
        return Batch(self._wanted.vchannel, self._wanted.collection, messages, closed_tick)

    def _take(self, consumed: Consumed, messages: list[Received]) -> None:
        tags = consumed.properties
        kind = int(tags.get("_t", "0"))
        id = MessageId(consumed.message_id)
        tick = TimeTick(consumed.tick)
        end = self._wanted.end
        if end is not None and id >= end.id and "_np" not in tags:
            self.done = True
            return
        if kind != MessageType.TIME_TICK and end is not None and tick > end.tick:
            self.done = True
            return
        if kind == MessageType.TIME_TICK:
            new = self._progress.close(tick, MessageId(consumed.last_confirmed_id))
            self.done = end is not None and tick >= end.tick
            shown = new and self._wanted.with_ticks
        else:
            new = self._progress.admit(
                id,
                tick,
                MessageId(consumed.last_confirmed_id),
                whole="_tx" not in tags or kind == MessageType.COMMIT_TXN,
            )
            shown = new and kind not in TXN_TYPES
        if shown:
            messages.append(
                Received(
                    consumed.payload,
                    id,
                    tick,
                    tags.get("_vc", ""),
                    self._wanted.collection,
                    kind,
                    tags,
                )
            )
