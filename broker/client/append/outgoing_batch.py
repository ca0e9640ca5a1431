"""A batch on the client's side: its messages with their tickets, and its encoding.

Each message has a ticket, a future of its own, because a task that is cancelled cancels the future
it awaits, and that must not be the future of the whole batch.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from broker.client.durability import word_of
from broker.client.errors import TidemarkError
from broker.client.message import Appended
from broker.model.ids import MessageId, TimeTick, VChannelName
from schemas.batches import OWN, WHOLE, ScannedBatch, append_request, shared_properties
from schemas.packing import pack
from schemas.wire import Produced

Ticket = asyncio.Future[Appended]

_OWN_MARK = shared_properties([(OWN, "")])
WHOLE_MARK = shared_properties([(WHOLE, "")])
"""In the place of the property that names a transaction: the batch is one of its own."""


class BatchHeader(NamedTuple):
    """What the messages of a batch have in common: messages with equal headers are gathered."""

    vchannel: VChannelName
    type: int
    properties: bytes
    deadline_s: float
    durability: int = 0
    raw: bool = False
    """The vchannel need not exist: store it also when its collection was dropped."""
    reserved: bytes = b""
    """Properties that the log itself reads: they name its transaction and its partition."""


@dataclass(slots=True)
class OutgoingBatch:
    """Messages that are still being gathered; `linger` is the timer that sends them."""

    deadline_at_s: float
    payloads: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    own: list[bytes] = field(default_factory=list)
    """The properties of each message, unless its header has them."""
    tickets: list[Ticket] = field(default_factory=list)
    size_bytes: int = 0
    linger: asyncio.TimerHandle | None = None

    def drop_cancelled(self) -> None:
        """Remove the messages whose tickets were cancelled."""
        kept = [at for at, ticket in enumerate(self.tickets) if not ticket.done()]
        if len(kept) < len(self.tickets):
            self.payloads = [self.payloads[at] for at in kept]
            self.keys = [self.keys[at] for at in kept]
            self.own = [self.own[at] for at in kept]
            self.tickets = [self.tickets[at] for at in kept]


class BatchTickets:
    """Stands for all tickets of a batch that was sent: each gets its own result or error."""

    __slots__ = ("_all_done", "_tickets", "_vchannel")

    def __init__(
        self,
        vchannel: VChannelName,
        tickets: Sequence[Ticket],
        all_done: Callable[[int], None],
    ) -> None:
        """`all_done` is called with the number of tickets once all of them are done."""
        self._vchannel = vchannel
        self._tickets = tickets
        self._all_done = all_done

    def done(self) -> bool:
        return not self._tickets

    def set_result(self, answer: Produced) -> None:
        try:
            places = message_results(self._vchannel, answer, len(self._tickets))
        except TidemarkError as error:
            # An invalid answer is an error for each ticket; otherwise they would wait for ever.
            return self.set_exception(error)
        for ticket, place in zip(self._tickets, places, strict=True):
            if not ticket.done():
                ticket.set_result(place)
        self._end()
        return None

    def set_exception(self, error: BaseException) -> None:
        for ticket in self._tickets:
            if not ticket.done():
                # A copy for each: `raise` adds the traceback of each caller to the exception.
                own = copy.copy(error)
                own.__cause__ = error.__cause__
                ticket.set_exception(own)
        self._end()

    def split(self, counts: Sequence[int]) -> list["BatchTickets"]:
        """The same tickets in parts of so many each; this object is not used any more."""
        ends = accumulate(counts, initial=0)
        parts = [self._tickets[start:end] for start, end in pairwise(ends)]
        return [BatchTickets(self._vchannel, part, self._all_done) for part in parts]

    def _end(self) -> None:
        count, self._tickets = len(self._tickets), ()
        self._all_done(count)


def encode_batch(
    header: BatchHeader,
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None],
    codec: int,
    pack_bytes_min: int,
    own: Sequence[bytes] = (),
) -> bytes:
    """The AppendRequest without its sequence number, which is decided when it is sent.

    `own`: the properties of each message, for a server that knows them; none: only the header's.
    """
    properties, own_sizes = header.reserved + header.properties, tuple[int, ...]()
    if own and own.count(own[0]) == len(own):
        properties, own = properties + own[0], ()
    if own:
        properties, own_sizes = _OWN_MARK + properties, tuple(map(len, own))
    sizes = tuple(map(len, payloads))
    key_sizes: tuple[int, ...] = ()
    key_body = b""
    if keys.count(None) < len(keys):
        # 0 is "no key", so that an empty key (1) can be told from none.
        key_sizes = tuple([0 if key is None else len(key) + 1 for key in keys])
        key_body = b"".join([key for key in keys if key is not None])
    body: Sequence[bytes] = payloads
    if sum(sizes) < pack_bytes_min:
        codec = 0
    if codec:
        body = [pack(codec, b"".join(payloads))]
    batch = ScannedBatch(
        vchannel=header.vchannel,
        sizes=sizes,
        properties=properties,
        type=header.type,
        durability=header.durability,
        codec=codec,
        key_sizes=key_sizes,
        keys=key_body,
        raw=int(header.raw),
        own_sizes=own_sizes,
        own=b"".join(own),
    )
    return append_request(batch, body)


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The properties that all messages of a batch share."""
    return shared_properties(properties.items()) if properties else b""


def message_results(vchannel: VChannelName, answer: Produced, count: int) -> list[Appended]:
    """The result of each message of a batch: their ids and ticks follow one by one."""
    first, tick, confirmed = answer.message_id, answer.tick, answer.last_confirmed_id
    # The log stores this for a whole batch: either each message confirms its own id, or none.
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
