"""The unacknowledged appends of one pchannel: those that wait, and those in flight.

Pure: no sockets, no clock, no futures. It decides the order of sending and what is sent again, and
it knows whether an append may have been written. Every append that was offered leaves exactly
once: answered, refused, expired, lost, or abandoned by its caller.

What may be sent again. A refusal that means "not stored" may always be. After a lost stream, or a
refusal that leaves it open whether the append was stored, a repeat may store it twice; the caller
chooses with `resend`. Batches are safe to repeat: they carry a producer name and a sequence number
(as with Kafka's idempotent producer), by which the server recognises a repeat.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.client.net.retry_rules import RetryVerdict, append_verdict, may_be_written
from broker.model.failure import StreamingCode
from schemas.batches import stamp

W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)

UNBOUNDED = 1 << 62
NUMBERED_IN_FLIGHT_MAX = 16
"""Numbered batches in flight; a server remembers at least so many of each producer, and would not
recognise the repeat of an older one."""


class PendingAppend(Generic[W_co]):
    """One append: a single message, or a batch of `count` messages.

    `waiter` belongs to the caller; the outbox only returns it. `unanswered`: it may have been
    written, because a stream broke while the append was in flight, or the server could not tell.
    With `once` it is never sent again after that. `number`: the producer name and sequence number
    of a batch, from its first sending on. `needs`: the revision of `Append` that it is encoded for.
    """

    __slots__ = (
        "abandoned",
        "count",
        "deadline_s",
        "message",
        "needs",
        "number",
        "once",
        "order",
        "refusal",
        "unanswered",
        "waiter",
    )

    def __init__(
        self, message: bytes, deadline_s: float, waiter: W_co, once: bool = False, count: int = 1
    ) -> None:
        self.message = message
        self.deadline_s = deadline_s
        self.waiter = waiter
        self.once = once
        self.count = count
        self.needs = 0
        self.number: tuple[str, int] | None = None
        self.order = 0
        self.abandoned = False
        self.unanswered = False
        self.refusal: tuple[StreamingCode, str] | None = None


@dataclass(frozen=True, slots=True)
class Expired(Generic[W_co]):
    """An append whose deadline passed; `maybe_written` when it was sent and never answered."""

    pending: PendingAppend[W_co]
    maybe_written: bool


@dataclass(frozen=True, slots=True)
class SendLimits:
    """How much one client may have unacknowledged on one pchannel before `append` waits."""

    appends_max: int = 8192
    bytes_max: int = 64 * 1024 * 1024


class SequenceNumbers:
    """Gives each batch of one producer its name and sequence number.

    A batch keeps its number on every stream, so that the server recognises a repeat. It gets
    another number, under another name, only when it is certain that it was never stored.
    """

    def __init__(self, new_name: Callable[[], str]) -> None:
        """`new_name` returns names that no producer ever had."""
        self._new_name = new_name
        self._name = new_name()
        self._next = 0

    def number(self, pending: PendingAppend[object]) -> None:
        """Number a batch that has no number yet."""
        if pending.number is None:
            pending.number = self._name, self._next
            self._next += pending.count

    def retire(self, name: str) -> None:
        """Number under a new name from here on, unless `name` was replaced already."""
        if name == self._name:
            self._name, self._next = self._new_name(), 0


class Outbox(Generic[W]):
    """All unacknowledged appends of one pchannel; of batches with `numbers`."""

    def __init__(self, limits: SendLimits, numbers: SequenceNumbers | None = None) -> None:
        self._limits = limits
        self._numbers = numbers
        self._in_flight_max = UNBOUNDED if numbers is None else NUMBERED_IN_FLIGHT_MAX
        self._offered = 0
        self._last_request_id = 0
        self._returned: list[PendingAppend[W]] = []
        self._queued: deque[PendingAppend[W]] = deque()
        self._in_flight: dict[int, PendingAppend[W]] = {}
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._queued) + len(self._returned) + len(self._in_flight)

    def __iter__(self) -> Iterator[PendingAppend[W]]:
        """Those not sent, then those in flight."""
        yield from self._returned
        yield from self._queued
        yield from self._in_flight.values()

    @property
    def is_numbered(self) -> bool:
        """Whether it holds batches with sequence numbers, not single messages."""
        return self._numbers is not None

    @property
    def has_room(self) -> bool:
        return len(self) < self._limits.appends_max and self.bytes_held < self._limits.bytes_max

    @property
    def room(self) -> int:
        """How many more appends the limits allow; `bytes_max` counts as all or nothing."""
        return self._limits.appends_max - len(self) if self.has_room else 0

    @property
    def to_send(self) -> bool:
        """Whether an append waits that may be sent now."""
        return self.waits and len(self._in_flight) < self._in_flight_max

    @property
    def waits(self) -> bool:
        """Whether an append is to be sent, now or later."""
        return bool(self._queued or self._returned)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def awaits_answers(self) -> bool:
        """Whether a caller waits for an append that is in flight."""
        return not all(it.abandoned for it in self._in_flight.values())

    @property
    def messages(self) -> int:
        """The number of messages in all batches."""
        return sum([pending.count for pending in self])

    def offer(self, pending: PendingAppend[W]) -> None:
        """Queue an append; it is sent after all that were offered before it."""
        self._offered += 1
        pending.order = self._offered
        self._queued.append(pending)
        self.bytes_held += len(pending.message)

    def take(self, bytes_max: int) -> list[tuple[int, bytes]]:
        """Request ids and messages to send now: up to `bytes_max` bytes, but at least one.

        They count as in flight from here on. Abandoned appends are dropped instead.
        """
        self._put_returned_first()
        taken: list[tuple[int, bytes]] = []
        queued, in_flight, numbers = self._queued, self._in_flight, self._numbers
        request_id = self._last_request_id
        while queued and bytes_max > 0 and len(in_flight) < self._in_flight_max:
            pending = queued.popleft()
            size = len(pending.message)
            if pending.abandoned:
                self.bytes_held -= size
                continue
            request_id += 1
            in_flight[request_id] = pending
            # Numbered when first sent, not when offered: what is dropped before that leaves no gap
            # in the numbers, which the server would refuse.
            if numbers is not None:
                numbers.number(pending)
            taken.append((request_id, pending.message))
            bytes_max -= size
        self._last_request_id = request_id
        return taken

    def drop_abandoned(self) -> None:
        """Drop those that were not sent, or are to be sent again, and that nobody waits for."""
        for each in [it for it in (*self._returned, *self._queued) if it.abandoned]:
            self.bytes_held -= len(each.message)
        self._returned = [it for it in self._returned if not it.abandoned]
        self._queued = deque([it for it in self._queued if not it.abandoned])

    def encode_again(
        self, revision: int, anew: Callable[[PendingAppend[W]], Sequence[PendingAppend[W]]]
    ) -> None:
        """Replace what needs a later revision by what `anew` makes of it. Nothing is in flight."""
        assert not self._in_flight, "a stream that begins has sent nothing"
        self._put_returned_first()
        queued, self._queued = self._queued, deque()
        for pending in queued:
            made = [pending] if pending.needs <= revision else anew(pending)
            for each in made:
                each.order = pending.order
            self._queued.extend(made)
        self.bytes_held = sum([len(pending.message) for pending in self._queued])

    def answered(self, request_id: int) -> PendingAppend[W] | None:
        """Remove and return the append of this answer; None when it has left already."""
        pending = self._in_flight.pop(request_id, None)
        if pending is not None:
            self.bytes_held -= len(pending.message)
        return pending

    def refused(
        self, request_id: int, code: StreamingCode, cause: str, *, resend: bool
    ) -> tuple[RetryVerdict, PendingAppend[W]] | None:
        """What to do about a refusal. All but SURFACE stay here, to be sent again in order.

        Without `resend` an append that may have been written leaves too: it is `unanswered` then,
        and the caller fails it. None when the append has left already.
        """
        pending = self.answered(request_id)
        if pending is None:
            return None
        verdict = append_verdict(code)
        # Never reset: a later refusal says nothing about an earlier try that was not answered.
        pending.unanswered = pending.unanswered or may_be_written(code)
        if verdict is not RetryVerdict.SURFACE and (
            (resend and not pending.once) or not pending.unanswered
        ):
            # Kept as the cause, should the deadline pass before another answer.
            pending.refusal = (code, cause)
            self._return(pending)
        return verdict, pending

    def stream_lost(self, *, resend: bool) -> list[PendingAppend[W]]:
        """The stream ended: each append in flight may have been written or not.

        With `resend` they stay, to be sent again before all that was never sent; a single message
        may be stored twice then. Returns those that left, for the caller to fail.
        """
        lost = list(self._in_flight.values())
        self._in_flight.clear()
        for pending in lost:
            self.bytes_held -= len(pending.message)
            pending.unanswered = True
            if resend and not pending.once:
                self._return(pending)
        return [pending for pending in lost if pending.once or not resend]

    def expire(self, now_s: float) -> tuple[list[Expired[W]], float | None]:
        """Remove the appends whose deadline has passed; also the earliest deadline of the rest."""
        sent = [(key, it) for key, it in self._in_flight.items() if it.deadline_s <= now_s]
        # Their answers may still come; `answered` returns None for them.
        for request_id, _ in sent:
            del self._in_flight[request_id]
        unsent = [it for it in (*self._returned, *self._queued) if it.deadline_s <= now_s]
        if unsent:
            self._returned = [it for it in self._returned if it.deadline_s > now_s]
            self._queued = deque(it for it in self._queued if it.deadline_s > now_s)
        expired = [Expired(it, maybe_written=True) for _, it in sent]
        expired += [Expired(it, maybe_written=it.unanswered) for it in unsent]
        for it in expired:
            self.bytes_held -= len(it.pending.message)
        return expired, min((it.deadline_s for it in self), default=None)

    def clear(self) -> list[Expired[W]]:
        """Remove everything, as if all deadlines had passed."""
        return self.expire(float("inf"))[0]

    def out_of_sequence(self, request_id: int, expected: int) -> PendingAppend[W] | None:
        """The server refused the number of a batch and expects `expected` (0: does not know us).

        The batch stays here, to be sent under another name, when that cannot store it twice: it
        was never sent before, or the server expects this number or an earlier one, so it has not
        stored the batch. Otherwise returns it, for the caller to fail as unknown.
        """
        pending = self.answered(request_id)
        if pending is None:
            return None
        assert pending.number is not None, "it was sent"
        assert self._numbers is not None, "only numbered batches are refused so"
        name, sequence = pending.number
        # Any other `expected` means that the server has forgotten the batch, or never knew it: the
        # earlier try may be stored.
        if pending.unanswered and not 0 < expected <= sequence:
            return pending
        # Under the old name the gap would stay and later batches be refused; a new one starts at 0.
        self._numbers.retire(name)
        pending.number = None
        self._return(pending)
        return None

    def stamp_of(self, request_id: int) -> bytes:
        """The encoded number of a batch in flight, which goes in front of its request."""
        number = self._in_flight[request_id].number
        assert number is not None, "it was sent"
        return stamp(*number)

    def _return(self, pending: PendingAppend[W]) -> None:
        self._returned.append(pending)
        self.bytes_held += len(pending.message)

    def _put_returned_first(self) -> None:
        # Refusals come in any order; what was offered first must be sent first all the same.
        if self._returned:
            self._returned.sort(key=lambda pending: pending.order)
            self._queued.extendleft(reversed(self._returned))
            self._returned.clear()
