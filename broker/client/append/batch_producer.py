"""Gathers the appends of one pchannel into batches.

An open batch is sent at once while little is in flight. Otherwise it waits for an answer, for more
messages, or for its linger to pass, whichever comes first: under load batches grow, and a lone
append does not wait.

Next: broker/client/append/producer.py
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.client.append.earlier_servers import split_by_properties
from broker.client.append.outbox import Outbox, PendingAppend, SendLimits, SequenceNumbers
from broker.client.append.outgoing_batch import (
    WHOLE_MARK,
    BatchHeader,
    BatchTickets,
    OutgoingBatch,
    Ticket,
    encode_batch,
)
from broker.client.append.producer import AnswerFuture, Producer, Waiter
from broker.client.errors import ClosedClient
from broker.client.message import Message, key_bytes
from broker.client.net.network import Network
from broker.client.refusal_kinds import refusal
from broker.model.failure import StreamingCode
from broker.model.ids import PChannelName
from schemas.batches import ARROW, ScannedBatch, append_request
from schemas.handshake import OWN_PROPERTIES, WHOLE_TXNS
from schemas.packing import codec_named

MESSAGES_MAX = 4096
"""In one batch that is gathered; a server takes more."""
IN_FLIGHT_FEW = 2
"""With so many batches in flight an open one waits for more messages: the server works on one
while the next arrives, and a third would only queue there."""
IN_FLIGHT_SMALL = 4
MESSAGES_FEW = 64
"""While no more messages than these are in flight, up to `IN_FLIGHT_SMALL` batches may be: at a low
rate the cost of another batch is less than the wait."""
DEADLINE_STEPS = 16
"""Deadlines that remain after a wait for room are rounded down to so many parts of a whole one."""
MESSAGE_OVERHEAD_BYTES = 256
"""Counted for each message in addition to its payload."""


@dataclass(frozen=True, slots=True)
class Gathering:
    """How appends become batches.

    A batch is closed when the next message would take it over `bytes_max`, and `linger_ms` after
    its first message at the latest; at once when little is in flight.
    `compression`: "lz4" or "zstd", for bodies of `pack_bytes_min` and more; needs the extra
    `compression`.
    """

    bytes_max: int = 256 * 1024
    linger_ms: float = 5.0
    compression: str | None = None
    pack_bytes_min: int = 1024

    def __post_init__(self) -> None:
        """Raises ValueError for values out of range, and for a codec that is not installed."""
        if self.bytes_max < 1 or self.linger_ms < 0:
            raise ValueError(
                f"bytes_max is {self.bytes_max}, must be at least 1;"
                f" linger_ms is {self.linger_ms}, must not be negative"
            )
        if self.compression is not None:
            codec_named(self.compression)


class BatchProducer(Producer):
    """Appends batches to one pchannel. `run` must run in a task for as long as it is used."""

    def __init__(
        self,
        name: PChannelName,
        network: Network,
        limits: SendLimits,
        gathering: Gathering,
        new_name: Callable[[], str],
        *,
        resend: bool,
    ) -> None:
        self._gathering = gathering
        self._codec = codec_named(gathering.compression) if gathering.compression else 0
        self._limits = limits
        self._open: dict[BatchHeader, OutgoingBatch] = {}
        self._tickets = 0
        """Number of messages that were appended singly and have no answer yet."""
        self._flushing = False
        outbox: Outbox[Waiter] = Outbox(limits, SequenceNumbers(new_name))
        super().__init__(name, network, outbox, resend=resend)

    def gather(self, header: BatchHeader, message: Message) -> Ticket:
        """Add one message to the open batch; the ticket gets its result, or the error."""
        if self._closing:
            raise ClosedClient("the client is closed")
        payload = message.payload
        if type(payload) is not bytes:
            # The batch is encoded later: what the caller changes meanwhile must not be stored.
            payload = bytes(payload)
        key = None if message.key is None else key_bytes(message.key)
        size = len(payload) + MESSAGE_OVERHEAD_BYTES + (0 if key is None else len(key))
        own = header.properties
        if own and self._takes_own:
            # Messages with other properties share a batch; a server of an earlier release refuses
            # that, and so does one that is not known yet.
            header = header._replace(properties=b"")
            size += len(own)
        else:
            own = b""
        batch = self._open.get(header)
        if batch is not None and (
            batch.size_bytes + size > self._gathering.bytes_max
            or len(batch.payloads) == MESSAGES_MAX
        ):
            self._close_batch(header)
            self._work.set()
            batch = None
        if batch is None:
            batch = self._begin(header)
        ticket: Ticket = self._loop.create_future()
        batch.payloads.append(payload)
        batch.keys.append(key)
        batch.own.append(own)
        batch.tickets.append(ticket)
        self._tickets += 1
        batch.size_bytes += size
        return ticket

    async def gather_when_room(
        self, header: BatchHeader, message: Message, deadline_at_s: float
    ) -> Ticket:
        """As `gather`, after waiting for room. Raises DeadlineExceeded."""
        if not self.has_room:
            await self.wait_for_room(deadline_at_s)
            # What the wait took is gone. In steps: messages with other deadlines share no batch.
            left_s = max(deadline_at_s - self._loop.time(), 0.0)
            step_s = header.deadline_s / DEADLINE_STEPS
            header = header._replace(deadline_s=left_s // step_s * step_s or left_s)
        return self.gather(header, message)

    def offer_batch(
        self,
        header: BatchHeader,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        deadline_at_s: float,
    ) -> PendingAppend[AnswerFuture]:
        """Queue a whole batch, behind messages of the same header that were gathered before."""
        request = encode_batch(header, payloads, keys, self._codec, self._gathering.pack_bytes_min)
        return self._offer_request(header, request, len(payloads), deadline_at_s)

    def offer_whole(
        self,
        header: BatchHeader,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        own: Sequence[bytes],
        deadline_at_s: float,
    ) -> PendingAppend[AnswerFuture]:
        """Queue a batch that is a transaction of its own; only while `takes_whole`."""
        packing = self._codec, self._gathering.pack_bytes_min
        whole = header._replace(reserved=WHOLE_MARK + header.reserved)
        request = encode_batch(whole, payloads, keys, *packing, own)
        pending = self._offer_request(header, request, len(payloads), deadline_at_s)
        pending.needs = WHOLE_TXNS
        return pending

    def offer_rows(
        self, header: BatchHeader, body: bytes, rows: int, deadline_at_s: float
    ) -> PendingAppend[AnswerFuture]:
        """Queue a batch of Arrow rows, behind what was gathered before."""
        batch = ScannedBatch(
            vchannel=header.vchannel,
            properties=header.reserved + header.properties,
            type=header.type,
            durability=header.durability,
            codec=ARROW,
            raw=int(header.raw),
        )
        return self._offer_request(header, append_request(batch, [body]), rows, deadline_at_s)

    def _offer_request(
        self, header: BatchHeader, request: bytes, count: int, deadline_at_s: float
    ) -> PendingAppend[AnswerFuture]:
        if self._closing:
            raise ClosedClient("the client is closed")
        # Messages gathered earlier go first: bodies of a transaction keep their order.
        for earlier in {header, header._replace(properties=b"")} & self._open.keys():
            self._close_batch(earlier)
        waiter: AnswerFuture = self._loop.create_future()
        return self._put(PendingAppend(request, deadline_at_s, waiter, count=count))

    async def run(self) -> None:
        """Serve until closed or cancelled; then fail every append that has no answer."""
        try:
            await super().run()
        finally:
            self._close_all()
            # `super().run()` has cleared the outbox, but not the batches that were still open.
            for expired in self._outbox.clear():
                error = ClosedClient("the client was closed before the append was sent")
                self._fail(expired, error)

    def _greeted(self, revision: int) -> None:
        super()._greeted(revision)
        self._outbox.encode_again(revision, self._for_earlier)

    def _for_earlier(self, pending: PendingAppend[Waiter]) -> Sequence[PendingAppend[Waiter]]:
        if pending.unanswered:
            # It may be stored whole. Then the parts, whose numbers lie within the numbers of the
            # whole, would be refused as invalid although they are stored.
            self._fail_unknown(pending)
        elif pending.needs < WHOLE_TXNS:
            return split_by_properties(pending)
        elif not pending.waiter.done():
            cause = f"{self._name} moved to a server that takes transactions in steps only"
            pending.waiter.set_exception(refusal(StreamingCode.TRANSACTION_EXPIRED, cause))
        return ()

    def close(self) -> None:
        """Refuse further appends; `run` returns once everything is answered."""
        self._close_all()
        super().close()

    def answers_done(self, *, progress: bool) -> None:
        super().answers_done(progress=progress)
        if self._open:
            self._flush()
        elif self._outbox.to_send:
            self._work.set()  # the answer made room for one more in flight

    @property
    def takes_whole(self) -> bool:
        """Whether the server that was last heard of takes a transaction as one batch."""
        return self._revision >= WHOLE_TXNS

    @property
    def _takes_own(self) -> bool:
        return self._revision >= OWN_PROPERTIES

    @property
    def has_room(self) -> bool:
        """Whether an append is taken now; otherwise `wait_for_room` first. Called per message."""
        limits = self._limits
        return (
            self._tickets < limits.appends_max
            and self._outbox.bytes_held < limits.bytes_max
            and not self._for_room
        )

    def _room(self) -> int:
        """Single messages count by number and by bytes, whole batches by bytes only."""
        return min(super()._room(), self._limits.appends_max - self._tickets)

    def _begin(self, header: BatchHeader) -> OutgoingBatch:
        batch = self._open[header] = OutgoingBatch(self._loop.time() + header.deadline_s)
        if not self._little_in_flight():
            linger_s = self._gathering.linger_ms / 1000
            batch.linger = self._loop.call_later(linger_s, self._lingered, header, batch)
        elif not self._flushing:
            self._flushing = True
            # Not now: messages appended in the same turn of the event loop join this batch.
            self._loop.call_soon(self._flush)
        return batch

    def _little_in_flight(self) -> bool:
        """Whether one more batch is sent at once."""
        # Cheapest test first: `messages` walks through the outbox, but only while it is short.
        batches = len(self._outbox)
        if batches < IN_FLIGHT_FEW:
            return True
        return batches < IN_FLIGHT_SMALL and self._outbox.messages <= MESSAGES_FEW

    def _flush(self) -> None:
        """Close open batches, the oldest first, while little is in flight."""
        self._flushing = False
        while self._open and self._little_in_flight():
            self._close_batch(next(iter(self._open)))
        # Sent from here if possible: waking the stream's task costs a turn of the event loop.
        if self._outbox.to_send and not (self._stream and self._stream.send_at_once()):
            self._work.set()
        for header, batch in self._open.items():
            # Begun while little was in flight, so it has no timer yet.
            if batch.linger is None:
                linger_s = self._gathering.linger_ms / 1000
                batch.linger = self._loop.call_later(linger_s, self._lingered, header, batch)

    def _lingered(self, header: BatchHeader, batch: OutgoingBatch) -> None:
        # The batch may have been closed meanwhile, and another one opened under its header.
        if self._open.get(header) is batch:
            self._close_batch(header)
            self._work.set()

    def _close_all(self) -> None:
        while self._open:
            self._close_batch(next(iter(self._open)))
        self._work.set()

    def _close_batch(self, header: BatchHeader) -> None:
        """Close a batch and queue it without the messages whose tickets were cancelled.

        The caller wakes the stream.
        """
        batch = self._open.pop(header)
        if batch.linger is not None:
            batch.linger.cancel()
        gathered = len(batch.tickets)
        batch.drop_cancelled()
        tickets = batch.tickets
        # Cancelled messages leave now; `_tickets_done` will not count them.
        self._tickets -= gathered - len(tickets)
        self.room_made()
        if not tickets:
            return
        waiter = BatchTickets(header.vchannel, tickets, self._tickets_done)
        packing = self._codec, self._gathering.pack_bytes_min
        request = encode_batch(header, batch.payloads, batch.keys, *packing, batch.own)
        # Typed on the left: a call of `PendingAppend[Waiter]` goes through two more of `typing`.
        pending: PendingAppend[Waiter] = PendingAppend(
            request, batch.deadline_at_s, waiter, count=len(tickets)
        )
        if batch.own.count(batch.own[0]) < len(batch.own):
            pending.needs = OWN_PROPERTIES
        # Gathered for the server before, which knew more than this one.
        known = pending.needs <= self._revision
        for each in [pending] if known else split_by_properties(pending):
            self._queue(each)

    def _tickets_done(self, tickets: int) -> None:
        self._tickets -= tickets
        self.room_made()
