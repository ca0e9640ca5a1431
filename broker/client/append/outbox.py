"""The appends of one pchannel between the caller and the answer: what waits, what is on its way.

Pure: no sockets, no clock, no futures. It owns the order of sending, the request ids, the limits,
and the knowledge of whether an append may have been written. Every append that was offered leaves
exactly once: answered, refused, expired, lost, or abandoned by its caller.
Next: broker/client/append/producer.py
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.client.net.retry_rules import RetryVerdict, append_verdict, may_be_written
from broker.model.failure import StreamingCode

W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)

UNBOUNDED = 1 << 62


class PendingAppend(Generic[W_co]):
    """One append. `waiter` belongs to the shell; the outbox hands it back and never looks at it.

    `unanswered` says that it may have been written: a stream broke while the append was on it, or
    the server could not tell. One that is to be written `once` is never sent again after that.
    A batch of `count` messages is one append; its `stamp` is its number, once it has one.
    """

    __slots__ = (
        "abandoned",
        "count",
        "deadline_s",
        "message",
        "once",
        "order",
        "refusal",
        "stamp",
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
        self.stamp: tuple[str, int] | None = None
        self.order = 0
        self.abandoned = False
        self.unanswered = False
        self.refusal: tuple[StreamingCode, str] | None = None


@dataclass(frozen=True, slots=True)
class Expired(Generic[W_co]):
    """An append whose time ran out; `maybe_written` when a send of it was never answered."""

    pending: PendingAppend[W_co]
    maybe_written: bool


@dataclass(frozen=True, slots=True)
class SendLimits:
    """How much one client may have waiting on one pchannel before `append` itself waits."""

    appends_max: int = 8192
    bytes_max: int = 64 * 1024 * 1024


class Outbox(Generic[W]):
    """All appends of one pchannel that have no answer yet."""

    def __init__(self, limits: SendLimits, in_flight_max: int = UNBOUNDED) -> None:
        """`in_flight_max`: so many may be on their way, beside the limits on all there are."""
        self._limits = limits
        self._in_flight_max = in_flight_max
        self._offered = 0
        self._last_request_id = 0
        self._returned: list[PendingAppend[W]] = []
        self._queued: deque[PendingAppend[W]] = deque()
        self._in_flight: dict[int, PendingAppend[W]] = {}
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._queued) + len(self._returned) + len(self._in_flight)

    def __iter__(self) -> Iterator[PendingAppend[W]]:
        """Those not sent first, then those on their way."""
        yield from self._returned
        yield from self._queued
        yield from self._in_flight.values()

    @property
    def has_room(self) -> bool:
        return len(self) < self._limits.appends_max and self.bytes_held < self._limits.bytes_max

    @property
    def room(self) -> int:
        """How many more appends may come in, as far as their number goes."""
        return self._limits.appends_max - len(self) if self.has_room else 0

    @property
    def to_send(self) -> bool:
        """Whether something waits to be sent, and may be."""
        waits = bool(self._queued or self._returned)
        return waits and len(self._in_flight) < self._in_flight_max

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def messages(self) -> int:
        """Those of all batches."""
        return sum([pending.count for pending in self])

    def offer(self, pending: PendingAppend[W]) -> None:
        """Take one append in; it goes out after all that were offered before."""
        self._offered += 1
        pending.order = self._offered
        self._queued.append(pending)
        self.bytes_held += len(pending.message)

    def take(self, bytes_max: int) -> list[tuple[int, bytes]]:
        """Request ids and messages to send now: up to `bytes_max` bytes, but one at least.

        What is taken is on its way. Those whose callers left before sending are dropped here.
        """
        self._put_returned_first()
        taken: list[tuple[int, bytes]] = []
        queued, in_flight, request_id = self._queued, self._in_flight, self._last_request_id
        while queued and bytes_max > 0 and len(in_flight) < self._in_flight_max:
            pending = queued.popleft()
            size = len(pending.message)
            if pending.abandoned:
                self.bytes_held -= size
                continue
            request_id += 1
            in_flight[request_id] = pending
            taken.append((request_id, self._as_sent(pending)))
            bytes_max -= size
        self._last_request_id = request_id
        return taken

    def answered(self, request_id: int) -> PendingAppend[W] | None:
        """The append this answer belongs to; None when nobody waits for it any more."""
        pending = self._in_flight.pop(request_id, None)
        if pending is not None:
            self.bytes_held -= len(pending.message)
        return pending

    def refused(
        self, request_id: int, code: StreamingCode, cause: str, *, resend: bool
    ) -> tuple[RetryVerdict, PendingAppend[W]] | None:
        """What to do about a refusal. All but SURFACE stay here, to be sent again in order.

        Without `resend` one that may have been written does not stay either: it is `unanswered`
        then, and to be failed. None when nobody waits for the answer any more.
        """
        pending = self.answered(request_id)
        if pending is None:
            return None
        verdict = append_verdict(code)
        pending.unanswered = pending.unanswered or may_be_written(code)
        if verdict is not RetryVerdict.SURFACE and (
            (resend and not pending.once) or not pending.unanswered
        ):
            pending.refusal = (code, cause)
            self._return(pending)
        return verdict, pending

    def stream_lost(self, *, resend: bool) -> list[PendingAppend[W]]:
        """The stream ended. Whatever was on it may have been written or not.

        With `resend` it is sent again, before all that was never sent, so an append can be written
        twice; without, it is given back here to be failed.
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
        """Remove what has run out of time; also the earliest deadline among the rest."""
        sent = [(key, it) for key, it in self._in_flight.items() if it.deadline_s <= now_s]
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
        """Everything out, as if all time had run out: the client closes."""
        return self.expire(float("inf"))[0]

    def _as_sent(self, pending: PendingAppend[W]) -> bytes:
        return pending.message

    def _return(self, pending: PendingAppend[W]) -> None:
        self._returned.append(pending)
        self.bytes_held += len(pending.message)

    def _put_returned_first(self) -> None:
        if self._returned:
            self._returned.sort(key=lambda pending: pending.order)
            self._queued.extendleft(reversed(self._returned))
            self._returned.clear()
