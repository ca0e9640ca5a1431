"""Send a member what its Group leases to it, within the credit that it granted.

While one lease is written, the next is read from the log: both take as long for large batches. So
one lease at the most waits here for the one before it, and it is paid for with credit, too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

from actors import ActorError, AskTimeout, MailboxFull, Ref
from broker.edge.groups.leased_batches import Read, in_parts, leased_reads
from broker.edge.rpc.read_pace import ReadPace
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.node.group_messages import GroupMessage, LeasedMessages, TakeMessages
from broker.transport import ServerBatchStream
from schemas.generated.tidemark import v1
from schemas.leased import leased_response
from schemas.message_bytes import encoded

TAKE_S: Final = 45.0
"""A Group answers a member that waits after half of it, at the latest."""
TAKE_BYTES_MIN: Final = 4096
RESPONSE_BYTES: Final = 1 << 20
"""A lease of more bytes, such as a large transaction, is sent in several responses."""

Answer = LeasedMessages | Refusal | Exception


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a Group answered, and when by the clock of the loop: a lease runs from then on."""

    answer: Answer
    at_s: float


@dataclass(frozen=True, slots=True)
class TakingMember:
    """A member of a Group. `bytes_max`: what one lease may hold; `lease_ms`: how long it lasts."""

    group: Ref[GroupMessage]
    member: int
    bytes_max: int
    lease_ms: int


class LeaseDelivery:
    """Of one stream. `write` puts a whole response on it."""

    def __init__(
        self,
        stream: ServerBatchStream,
        taker: TakingMember,
        write: Callable[[bytes], Awaitable[None]],
        pace: ReadPace,
    ) -> None:
        self._stream = stream
        self._taker = taker
        self._write = write
        self._pace = pace
        self._credit_bytes = 0
        self._more_credit = anyio.Event()
        # Kept: until Python 3.12 each look-up of the running loop is a system call.
        self._loop = asyncio.get_running_loop()

    def grant(self, credit_bytes: int) -> None:
        """The member takes so many bytes more."""
        self._credit_bytes += credit_bytes
        self._more_credit.set()

    async def run(self) -> None:
        """Until it is cancelled. Raises Refused when the Group has ended, StreamGone."""
        ahead: asyncio.Future[_Taken] | None = None
        lease_s = self._taker.lease_ms / 1000
        while True:
            while ahead is None and self._credit_bytes <= 0:
                self._more_credit = anyio.Event()
                await self._more_credit.wait()
            taken = await (ahead or self._taking(await self._stream.room()))
            ahead, leased = None, _unless_refused(taken.answer)
            if self._loop.time() >= taken.at_s + lease_s:
                # It ended while the one before it was written: the Group has leased it to others.
                continue
            parts = _parts(leased)
            for number, reads in enumerate(parts, start=1):
                framed = _framed(leased, reads, more=number < len(parts))
                self._credit_bytes -= len(framed)
                # Not ahead of a large lease: one part of it is in memory twice, and not all. A
                # member with a limit takes the next when it owes nothing.
                if len(parts) == 1 and self._credit_bytes > 0 and not self._pace.limited:
                    ahead = self._taking(self._taker.bytes_max)
                await self._write(framed)
            # Behind it, not before: the lease of what is sent runs already.
            await self._pace.pay(leased.items)

    def _taking(self, room: int) -> "asyncio.Future[_Taken]":
        allowed = max(TAKE_BYTES_MIN, min(room, self._taker.bytes_max, self._credit_bytes))
        taken: asyncio.Future[_Taken] = self._loop.create_future()

        def answered(given: Answer) -> None:
            if not taken.done():  # else the stream has ended
                taken.set_result(_Taken(given, self._loop.time()))

        take = TakeMessages(self._taker.member, allowed)
        try:
            self._taker.group.ask_then(take, answered, deadline_s=TAKE_S)
        except ActorError as error:
            answered(error)
        return taken


def _parts(leased: LeasedMessages) -> list[list[Read]]:
    """What to send of a lease in each response; nothing for no lease."""
    return in_parts(leased_reads(leased.items), RESPONSE_BYTES) if leased.lease else []


def _framed(leased: LeasedMessages, reads: list[Read], *, more: bool) -> bytes:
    head = v1.LeasedMessages(
        lease=leased.lease,
        span=v1.TickSpan(after=leased.span.after, upto=leased.span.upto),
        times=leased.times,
        more=more,
        alone=leased.alone,
    )
    return leased_response(encoded(head), reads)


def group_ended(error: Exception) -> Refused:
    """What a member hears when its Group does not answer, or lives no more."""
    if isinstance(error, AskTimeout | MailboxFull):
        return Refused(StreamingCode.INNER, f"the group does not answer ({error}); join again")
    return Refused(StreamingCode.ON_SHUTDOWN, f"the group ended here ({error}); join again")


def _unless_refused(answer: Answer) -> LeasedMessages:
    if isinstance(answer, LeasedMessages):
        return answer
    if isinstance(answer, Refusal):
        raise Refused(answer.code, answer.cause)
    raise group_ended(answer) from answer
