"""Gathers the appends of one pchannel into batches, and keeps each batch alive until its answer.

It owns the batches that are still open. One is sent at once when little is on the way; otherwise
it waits for that, for more messages, or for its linger to pass, whichever comes first.
Next: broker/client/append/append_stream.py

Why a future for each message: a task that is cancelled cancels what it waits for, and that must not
be everybody's batch.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.client.append.append_stream import AppendStream, BatchFailed
from broker.client.append.numbered_outbox import NumberedOutbox
from broker.client.append.outbox import Expired, Outbox, PendingAppend, SendLimits
from broker.client.append.produce_stream import ProduceStream
from broker.client.append.producer import Asker, Producer, Waiter
from broker.client.durability import word_of
from broker.client.errors import ClosedClient, TidemarkError, refusal
from broker.client.message import Appended, Message, key_bytes
from broker.client.net.assignment_table import Location
from broker.client.net.network import Network
from broker.client.net.retry_rules import RetryVerdict
from broker.model.failure import StreamingCode
from broker.model.ids import MessageId, PChannelName, TimeTick, VChannelName
from schemas.batches import ARROW, ScannedBatch, append_request, shared_properties
from schemas.packing import codec_named, pack
from schemas.wire import Produced, ProduceFailed

MESSAGES_MAX = 4096
"""In one batch that is gathered; a server takes more."""
ON_THE_WAY = 2
"""Batches without an answer beyond which an open one waits for more messages: one is written, one
is on its way there."""
SMALL_ON_THE_WAY = 4
FEW_MESSAGES = 64
"""As long as no more than these are without an answer so many batches may be on their way, because
what they cost is less than the wait: at 20,000 messages a second, twenty a millisecond."""
MESSAGE_OVERHEAD_BYTES = 256

Ticket = asyncio.Future[Appended]


@dataclass(frozen=True, slots=True)
class Gathering:
    """How appends become batches.

    A batch is closed when the next message would take it over `bytes_max`, and `linger_ms` after
    its first message at the latest; when little is on its way, at once.
    `compression`: "lz4" or "zstd", for bodies of `pack_bytes_min` and more; needs
    `tidemark[compression]`.
    """

    bytes_max: int = 256 * 1024
    linger_ms: float = 5.0
    compression: str | None = None
    pack_bytes_min: int = 1024

    def __post_init__(self) -> None:
        """ValueError for what cannot be, also for a codec that is not installed."""
        if self.bytes_max < 1 or self.linger_ms < 0:
            raise ValueError(
                f"bytes_max {self.bytes_max} must be above 0, linger_ms {self.linger_ms} not below"
            )
        if self.compression is not None:
            codec_named(self.compression)


class BatchHeader(NamedTuple):
    """What the messages of a batch have in common."""

    vchannel: VChannelName
    type: int
    properties: bytes
    deadline_s: float
    durability: int = 0


@dataclass(slots=True)
class _Open:
    """A batch that still takes messages."""

    deadline_at_s: float
    payloads: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)
    size_bytes: int = 0
    linger: asyncio.TimerHandle | None = None


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
        self._new_name = new_name
        self._open: dict[BatchHeader, _Open] = {}
        self._tickets = 0
        self._flushing = False
        super().__init__(name, network, limits, resend=resend)

    def gather(self, shared: BatchHeader, message: Message) -> Ticket:
        """Take one message in; the ticket gets where it landed, or the error."""
        if self._closing:
            raise ClosedClient("the client is closed")
        payload = message.payload
        size = len(payload) + MESSAGE_OVERHEAD_BYTES
        batch = self._open.get(shared)
        if batch is not None and (
            batch.size_bytes + size > self._gathering.bytes_max
            or len(batch.payloads) == MESSAGES_MAX
        ):
            self._seal(shared)
            self._work.set()
            batch = None
        if batch is None:
            batch = self._begin(shared)
        ticket: Ticket = self._loop.create_future()
        batch.payloads.append(payload)
        batch.keys.append(None if message.key is None else key_bytes(message.key))
        batch.tickets.append(ticket)
        self._tickets += 1
        batch.size_bytes += size
        return ticket

    def offer_batch(
        self,
        shared: BatchHeader,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        deadline_at_s: float,
    ) -> PendingAppend[Waiter]:
        """Take a whole batch in. After what was gathered before it."""
        request = encode_batch(shared, payloads, keys, self._codec, self._gathering.pack_bytes_min)
        return self.offer_request(shared, request, len(payloads), deadline_at_s)

    def offer_rows(
        self, shared: BatchHeader, body: bytes, rows: int, deadline_at_s: float
    ) -> PendingAppend[Waiter]:
        """Take a batch of Arrow rows in. After what was gathered before it."""
        batch = ScannedBatch(
            vchannel=shared.vchannel,
            properties=shared.properties,
            type=shared.type,
            durability=shared.durability,
            codec=ARROW,
        )
        return self.offer_request(shared, append_request(batch, [body]), rows, deadline_at_s)

    def offer_request(
        self, shared: BatchHeader, request: bytes, count: int, deadline_at_s: float
    ) -> PendingAppend[Waiter]:
        """Take an AppendRequest of so many messages in."""
        if self._closing:
            raise ClosedClient("the client is closed")
        if shared in self._open:
            self._seal(shared)
        waiter: Waiter = self._loop.create_future()
        return self._put(PendingAppend(request, deadline_at_s, waiter, count=count))

    async def run(self) -> None:
        """Serves until closed or cancelled; then everybody who still waits is answered."""
        try:
            await super().run()
        finally:
            self._seal_all()
            for expired in self._outbox.clear():
                self._fail(expired, ClosedClient("the client was closed before it was sent"))

    def close(self) -> None:
        """Take nothing more in; `run` returns once everything is answered."""
        self._seal_all()
        super().close()

    def batch_done(self, *, progress: bool) -> None:
        super().batch_done(progress=progress)
        if self._open:
            self._flush()
        elif self._outbox.to_send:
            self._work.set()  # one more may be on its way now

    def refused(self, answer: ProduceFailed) -> RetryVerdict:
        if not isinstance(answer, BatchFailed) or answer.code != StreamingCode.INVALID_REQUEST_SEQ:
            return super().refused(answer)
        outbox = self._outbox
        assert isinstance(outbox, NumberedOutbox)
        self._last_error = refusal(answer.code, answer.cause)
        unknown = outbox.out_of_sequence(answer.request_id, answer.expected_sequence)
        if unknown is not None:
            self._fail(Expired(unknown, maybe_written=True), None)
        self._work.set()
        return RetryVerdict.SURFACE

    @property
    def has_room(self) -> bool:
        """Whether more may be taken in; otherwise `wait_for_room` first. Asked for each message."""
        limits = self._limits
        return (
            self._tickets < limits.appends_max
            and self._outbox.bytes_held < limits.bytes_max
            and not self._for_room
        )

    def _room(self) -> int:
        """Tickets count one by one; a batch that came as one counts by its bytes alone."""
        return min(super()._room(), self._limits.appends_max - self._tickets)

    def _new_outbox(self) -> Outbox[Asker]:
        return NumberedOutbox(self._limits, self._new_name)

    def _new_stream(self, location: Location) -> ProduceStream:
        return AppendStream(location, self._outbox, self._work, self)

    def _begin(self, shared: BatchHeader) -> _Open:
        batch = self._open[shared] = _Open(self._loop.time() + shared.deadline_s)
        if not self._little_on_the_way():
            linger_s = self._gathering.linger_ms / 1000
            batch.linger = self._loop.call_later(linger_s, self._lingered, shared, batch)
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        return batch

    def _little_on_the_way(self) -> bool:
        """Whether one more batch goes at once."""
        batches = len(self._outbox)
        if batches < ON_THE_WAY:
            return True
        return batches < SMALL_ON_THE_WAY and self._outbox.messages <= FEW_MESSAGES

    def _flush(self) -> None:
        """Close batches, the oldest first, as far as little is on the way."""
        self._flushing = False
        while self._open and self._little_on_the_way():
            self._seal(next(iter(self._open)))
        if self._outbox.to_send and not (self._stream and self._stream.send_at_once()):
            self._work.set()
        for shared, batch in self._open.items():
            if batch.linger is None:
                linger_s = self._gathering.linger_ms / 1000
                batch.linger = self._loop.call_later(linger_s, self._lingered, shared, batch)

    def _lingered(self, shared: BatchHeader, batch: _Open) -> None:
        if self._open.get(shared) is batch:
            self._seal(shared)
            self._work.set()

    def _seal_all(self) -> None:
        while self._open:
            self._seal(next(iter(self._open)))
        self._work.set()

    def _seal(self, shared: BatchHeader) -> None:
        """Close a batch and put it in line; those who left before it was closed are not in it.

        The caller sees to it that the stream hears of it.
        """
        batch = self._open.pop(shared)
        if batch.linger is not None:
            batch.linger.cancel()
        kept = [at for at, ticket in enumerate(batch.tickets) if not ticket.done()]
        self._tickets -= len(batch.tickets) - len(kept)
        if not kept:
            return
        if len(kept) < len(batch.tickets):
            batch.payloads = [batch.payloads[at] for at in kept]
            batch.keys = [batch.keys[at] for at in kept]
            batch.tickets = [batch.tickets[at] for at in kept]
        tickets = batch.tickets
        asker = _Gathered(shared.vchannel, tickets, self._handed_out)
        request = encode_batch(
            shared, batch.payloads, batch.keys, self._codec, self._gathering.pack_bytes_min
        )
        self._queue(PendingAppend(request, batch.deadline_at_s, asker, count=len(tickets)))

    def _handed_out(self, tickets: int) -> None:
        self._tickets -= tickets
        if self._for_room:
            self._admit_waiters()


class _Gathered:
    """The tickets of a closed batch: each gets its own answer, or an error of its own."""

    __slots__ = ("_handed_out", "_tickets", "_vchannel")

    def __init__(
        self,
        vchannel: VChannelName,
        tickets: Sequence[Ticket],
        handed_out: Callable[[int], None],
    ) -> None:
        """`handed_out` is told their number when all of them are done."""
        self._vchannel = vchannel
        self._tickets = tickets
        self._handed_out = handed_out

    def done(self) -> bool:
        return not self._tickets

    def set_result(self, answer: Produced) -> None:
        try:
            places = landings(self._vchannel, answer, len(self._tickets))
        except TidemarkError as error:
            return self.set_exception(error)
        for ticket, place in zip(self._tickets, places, strict=True):
            if not ticket.done():
                ticket.set_result(place)
        self._end()
        return None

    def set_exception(self, error: BaseException) -> None:
        for ticket in self._tickets:
            if not ticket.done():
                mine = copy.copy(error)
                mine.__cause__ = error.__cause__
                ticket.set_exception(mine)
        self._end()

    def _end(self) -> None:
        count, self._tickets = len(self._tickets), ()
        self._handed_out(count)


def encode_batch(
    shared: BatchHeader,
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None],
    codec: int,
    pack_bytes_min: int,
) -> bytes:
    """The AppendRequest, but for its number."""
    sizes = tuple(map(len, payloads))
    key_sizes: tuple[int, ...] = ()
    key_body = b""
    if keys.count(None) < len(keys):
        key_sizes = tuple([0 if key is None else len(key) + 1 for key in keys])
        key_body = b"".join([key for key in keys if key is not None])
    body: Sequence[bytes] = payloads
    if sum(sizes) < pack_bytes_min:
        codec = 0
    if codec:
        body = [pack(codec, b"".join(payloads))]
    batch = ScannedBatch(
        vchannel=shared.vchannel,
        sizes=sizes,
        properties=shared.properties,
        type=shared.type,
        durability=shared.durability,
        codec=codec,
        key_sizes=key_sizes,
        keys=key_body,
    )
    return append_request(batch, body)


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """As a batch has them."""
    return shared_properties(properties.items()) if properties else b""


def landings(vchannel: VChannelName, answer: Produced, count: int) -> list[Appended]:
    """Where each message of a batch landed."""
    first, tick, confirmed = answer.message_id, answer.tick, answer.last_confirmed_id
    itself, durability = confirmed == first, word_of(answer.durability)
    return [
        Appended(
            vchannel,
            MessageId(first + at),
            TimeTick(tick + at),
            MessageId(first + at if itself else confirmed),
            durability,
        )
        for at in range(count)
    ]
