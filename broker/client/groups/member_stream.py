"""One stream of a member: messages in, acknowledgements out, each answered on the same stream.

What the stream delivered is settled on this stream only: another one is another member.
"""

import asyncio
from collections.abc import Sequence

import anyio

from broker.client.errors import (
    DeadlineExceeded,
    LeaseLost,
    OutcomeUnknown,
    TidemarkError,
)
from broker.client.groups.gathered_acks import TOGETHER_MAX, GatheredAcks
from broker.client.groups.member_credit import MemberCredit
from broker.client.groups.settle_request import SettleRequest
from broker.client.net.connection import Conversation
from broker.client.read.resuming_reader import WRITE_S
from broker.core.groups.group_changes import SPANS_MAX
from schemas.acks import acknowledged_number
from schemas.encoding.frames import frame
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded

ENDED = "the stream that delivered these messages has ended: they are delivered again"


class MemberStream:
    """Settles messages over one stream. Any number of tasks at once."""

    def __init__(self, stream: Conversation, credit_bytes: int) -> None:
        """`credit_bytes`: what the server may send ahead of the program."""
        self._stream = stream
        self._credit = MemberCredit(credit_bytes)
        self._writes = anyio.Lock(fast_acquire=True)
        self._unsent: list[SettleRequest] = []
        # Kept: until Python 3.12 each look-up of the running loop is a system call.
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[TidemarkError | None]] = {}
        self._settled_ever = 0
        self._ended = False
        self._gives: list[str] = []
        self._more = anyio.Event()
        self._acks = GatheredAcks()
        self._departs: asyncio.TimerHandle | None = None

    async def settle(self, request: SettleRequest, deadline_s: float) -> None:
        """Send the request and wait for its answer.

        Raises DeadlineExceeded for one that was never sent, LeaseLost, OutcomeUnknown, refusals.
        """
        if self._ended:
            raise LeaseLost(ENDED)
        self._settled_ever += 1
        number = request.number = self._settled_ever
        answer = self._waiting[number] = self._loop.create_future()
        # A timer of the loop, for members that settle messages one by one: a cancel scope costs
        # four times as much.
        alarm = self._loop.call_later(deadline_s, self._end_wait, request, deadline_s)
        try:
            now = self._acks.admit(request)
            if now and not self._sent_at_once(now):
                self._unsent += now
                self._more.set()
            error = await answer
            if error is not None:
                raise error
        finally:
            alarm.cancel()
            self._waiting.pop(number, None)
            self._withdrawn(number)
            self._send_gathered(number)

    def take_answer(self, message: bytes) -> bool:
        """Take the message if it says of one request that it is done; else False."""
        number = acknowledged_number(message)
        if number:
            self.answered(number, None)
        return bool(number)

    def answered(self, number: int, error: TidemarkError | None) -> None:
        """The server's answer to one request."""
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(error)
        self._send_gathered(number)

    def give(self, identity: str) -> None:
        """Ask that the vchannel goes to this member; `send_rest` sends it."""
        self._gives.append(identity)
        self._more.set()

    async def send_rest(self) -> None:
        """Send what nobody waits to send himself. Raises OutcomeUnknown when the stream breaks."""
        while True:
            self._more = anyio.Event()
            await self._flush()
            while self._gives:
                give = v1.GiveVChannel(identity=self._gives.pop(0))
                async with self._writes:
                    await self._send(v1.JoinGroupRequest(give=give))
            await self._more.wait()

    async def grant(self, credit_bytes: int) -> None:
        """Take so many bytes more; sent when enough has come together, see `MemberCredit`."""
        self._credit.taken(credit_bytes)
        if self._credit.due_bytes:
            async with self._writes:
                await self._send(v1.JoinGroupRequest())

    def leave(self) -> None:
        """Send what is still kept, if that need not wait, and end."""
        if not self._ended:
            together = self._acks.release()
            if together and not self._sent_at_once(together):
                self._unsent += together
        self.end()

    def end(self) -> None:
        """The stream is gone: what was sent and not answered may or may not have taken effect."""
        self._ended = True
        cause = "the stream ended before the answer; the messages may come again"
        for number, each in self._waiting.items():
            if not each.done():
                never_sent = self._withdrawn(number)
                each.set_result(LeaseLost(ENDED) if never_sent else OutcomeUnknown(cause))

    def _sent_at_once(self, together: Sequence[SettleRequest]) -> bool:
        """Send them now; False: they have to wait, or the stream broke.

        Mostly nothing is before them.
        """
        if self._unsent or self._writes.locked():
            return False
        due_bytes = self._credit.due_bytes
        first, *others = together
        framed = first.framed(due_bytes)
        if others:
            framed = b"".join((framed, *[it.framed(0) for it in others]))
        if not self._stream.write_at_once(framed):
            return False
        self._credit.granted(due_bytes)
        return True

    def _send_gathered(self, number: int) -> None:
        """Have what gathered behind a request that is over go, or wait for a little more."""
        linger_s = None if self._ended else self._acks.over(number)
        if linger_s is None:
            return
        if self._departs is not None:
            self._departs.cancel()
        if linger_s:
            self._departs = self._loop.call_later(linger_s, self._depart)
        else:
            self._depart()

    def _depart(self) -> None:
        together = () if self._ended else self._acks.depart()
        if together and not self._sent_at_once(together):
            self._unsent += together
            self._more.set()

    def _end_wait(self, request: SettleRequest, deadline_s: float) -> None:
        answer = self._waiting.get(request.number)
        if answer is None or answer.done():
            return
        if self._withdrawn(request.number):
            answer.set_result(DeadlineExceeded(f"nothing was sent within {deadline_s} s"))
        else:
            answer.set_result(OutcomeUnknown(f"no answer within {deadline_s} s"))

    def _withdrawn(self, number: int) -> bool:
        """Give it up unless it was sent; True: it never was, and will not be."""
        if self._acks.withdraw(number):
            return True
        if not self._unsent:
            return False
        left = [it for it in self._unsent if it.number != number]
        withdrawn = len(left) < len(self._unsent)
        self._unsent = left
        return withdrawn

    async def _flush(self) -> None:
        """Send what waits; those that come during a write share the next one."""
        async with self._writes:
            while self._unsent:
                count = _together(self._unsent)
                now, self._unsent = self._unsent[:count], self._unsent[count:]
                try:
                    await self._send(v1.JoinGroupRequest(settle=[it.message() for it in now]))
                except OutcomeUnknown as error:
                    for each in now:
                        self.answered(each.number, error)
                    raise

    async def _send(self, request: v1.JoinGroupRequest) -> None:
        request.credit_bytes = self._credit.due_bytes
        self._credit.granted(request.credit_bytes)
        # A message that is written in part would break the stream.
        with anyio.CancelScope(shield=True):
            try:
                await self._stream.write(frame(encoded(request)), WRITE_S)
            except Exception as error:
                # The task that reads learns why; here only the outcome counts.
                raise OutcomeUnknown(f"the stream broke: {error}") from error


def _together(requests: Sequence[SettleRequest]) -> int:
    """How many of these go in one message: a server bounds what it decodes at a time."""
    spans = 0
    for count, request in enumerate(requests[:TOGETHER_MAX]):
        spans += len(request.spans)
        if count and spans > SPANS_MAX:
            return count
    return min(len(requests), TOGETHER_MAX)
