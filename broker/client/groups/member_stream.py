"""One stream of a member: messages in, acknowledgements out, each answered on the same stream.

What the stream delivered is settled on this stream only: another one is another member.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from broker.client.batch import MessageBatch
from broker.client.errors import (
    DeadlineExceeded,
    InvalidRequestSequence,
    LeaseLost,
    NoSuchGroup,
    OutcomeUnknown,
    ProtocolBroken,
    ServerRefusal,
    TidemarkError,
)
from broker.client.groups.leased_batch import LeasedBatch, LeaseTerms
from broker.client.groups.member_credit import MemberCredit
from broker.client.groups.modes import told_mode
from broker.client.groups.settle_request import SettleRequest
from broker.client.groups.vchannel_shares import VChannelShares
from broker.client.net.connection import Conversation
from broker.client.read.deliveries import Deliveries
from broker.client.read.resuming_reader import SILENCE_S, WRITE_S, Held
from broker.client.refusal_kinds import refusal
from broker.core.naming import pchannel_of
from broker.model.failure import StreamingCode
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick
from schemas.acks import acknowledged_number
from schemas.encoding.frames import HEAD_BYTES, frame
from schemas.generated.tidemark import v1
from schemas.leased import scan_join_response
from schemas.message_bytes import encoded, parsed

JOIN = "/tidemark.v1.Groups/Join"
QUIET_S = 25.0
"""A server sends something every 20 s; the ping of the connection finds a dead one sooner."""


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
        self._more_gives = anyio.Event()

    async def settle(self, request: SettleRequest, deadline_s: float) -> None:
        """Send the request and wait for its answer. Raises LeaseLost, OutcomeUnknown, refusals."""
        if self._ended:
            raise LeaseLost(
                "the stream that delivered these messages has ended: they are delivered again"
            )
        self._settled_ever += 1
        request.number = self._settled_ever
        answer = self._waiting[request.number] = self._loop.create_future()
        # A timer of the loop, for members that settle messages one by one: a cancel scope costs
        # four times as much.
        alarm = self._loop.call_later(deadline_s, _end_wait, answer, deadline_s)
        try:
            if not self._sent_at_once(request):
                await self._send_later(request, deadline_s)
            error = await answer
        finally:
            alarm.cancel()
            self._waiting.pop(request.number, None)
        if error is not None:
            raise error

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

    def give(self, identity: str) -> None:
        """Ask that the vchannel goes to this member; `send_gives` sends it."""
        self._gives.append(identity)
        self._more_gives.set()

    async def send_gives(self) -> None:
        """Send what `give` is told, until the stream breaks."""
        while True:
            while not self._gives:
                self._more_gives = anyio.Event()
                await self._more_gives.wait()
            give = v1.GiveVChannel(identity=self._gives.pop(0))
            try:
                async with self._writes:
                    await self._send(v1.JoinGroupRequest(give=give))
            except OutcomeUnknown:
                return  # the stream is gone, and its reader says why

    async def grant(self, credit_bytes: int) -> None:
        """Take so many bytes more; sent when enough has come together, see `MemberCredit`."""
        self._credit.taken(credit_bytes)
        if self._credit.due_bytes:
            async with self._writes:
                await self._send(v1.JoinGroupRequest())

    def end(self) -> None:
        """The stream is gone: what was not answered may or may not have taken effect."""
        self._ended = True
        cause = "the stream ended before the answer; the messages may come again"
        for each in self._waiting.values():
            if not each.done():
                each.set_result(OutcomeUnknown(cause))

    def _sent_at_once(self, request: SettleRequest) -> bool:
        """Send it now; False: it has to wait, or the stream broke. Mostly nothing is before it."""
        if self._unsent or self._writes.locked():
            return False
        due_bytes = self._credit.due_bytes
        if not self._stream.write_at_once(request.framed(due_bytes)):
            return False
        self._credit.granted(due_bytes)
        return True

    async def _send_later(self, request: SettleRequest, deadline_s: float) -> None:
        self._unsent.append(request)
        try:
            with anyio.fail_after(deadline_s):
                await self._flush()
        except TimeoutError:
            if request in self._unsent:
                self._unsent.remove(request)
                raise DeadlineExceeded(f"nothing was sent within {deadline_s} s") from None
            raise OutcomeUnknown(f"no answer within {deadline_s} s") from None

    async def _flush(self) -> None:
        """Send what waits; those that come during a write share the next one."""
        async with self._writes:
            if self._unsent:
                unsent, self._unsent = self._unsent, []
                await self._send(v1.JoinGroupRequest(settle=[it.message() for it in unsent]))

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


@dataclass(frozen=True, slots=True)
class Joining:
    """What a member does on each vchannel. `credit_bytes`: what it takes ahead of its program.

    `streams`: those that are open now.
    """

    group: str
    member: str
    credit_bytes: int
    streams: set[MemberStream]
    shares: VChannelShares


class GroupSubscription:
    """A member on one vchannel: what to ask of each stream, and what its answers mean."""

    path = JOIN
    quiet_s = QUIET_S
    bounded = False
    done = False

    def __init__(self, vchannel: str, collection: str | None, joining: Joining) -> None:
        self.pchannel = pchannel_of(vchannel)
        self.channels = (vchannel,)
        self._joining = joining
        self._shares = joining.shares
        self._collection = collection
        self._joined = False

    def accepts(self, first: bytes) -> bool:
        return not first

    def request(self) -> bytes:
        self._joined = False
        joining = self._joining
        opening = v1.GroupOpen(
            vchannel=self.channels[0],
            group=joining.group,
            member=joining.member,
            identity=joining.shares.identity,
        )
        return frame(encoded(v1.JoinGroupRequest(open=opening, credit_bytes=joining.credit_bytes)))

    async def deliver(
        self,
        stream: Conversation,
        frames: list[bytes],
        deliveries: Deliveries[LeasedBatch],
        heard: Callable[[], None],
    ) -> None:
        """Deliver messages until the stream ends.

        A task of its own hands them to the program: the program may be waiting for an answer that
        is behind them on the stream.
        """
        member = MemberStream(stream, self._joining.credit_bytes)
        self._joining.streams.add(member)
        arriving = _Arriving(member, deliveries)
        stream.take_at_once(member.take_answer)
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(arriving.hand_over)
                tasks.start_soon(member.send_gives)
                try:
                    await self._read(stream, frames, member, arriving, heard)
                except Exception as error:  # noqa: BLE001 - raised below, outside of the task group
                    failure = error
                tasks.cancel_scope.cancel()
        finally:
            member.end()
            self._joining.streams.discard(member)
            self._shares.lost(self.channels[0], member.give)
        if failure is not None:
            raise failure

    async def judge(self, error: ServerRefusal, held: Held) -> None:
        """Every final refusal is one; there is nothing that retention explains."""
        if error.code is StreamingCode.UNRECOVERABLE and not self._joined:
            raise NoSuchGroup(error.cause, error.code) from error
        raise error

    async def _read(
        self,
        stream: Conversation,
        frames: list[bytes],
        member: MemberStream,
        arriving: "_Arriving",
        heard: Callable[[], None],
    ) -> None:
        joined = v1.GroupJoined()
        parts: list[MessageBatch] = []
        owed_bytes = 0
        while True:
            for each in frames:
                if member.take_answer(each):
                    continue
                answer, leased, batches = self._parsed(each)
                for settled in answer.settled:
                    member.answered(settled.number, _error(settled))
                if answer.joined is not None:
                    self._joined = True
                    joined = answer.joined
                    heard()
                if answer.ownership is not None:
                    told = answer.ownership
                    vchannel = self.channels[0]
                    self._shares.told(vchannel, member.give, told.members, told.owner)
                if leased is None:
                    continue
                owed_bytes += HEAD_BYTES + len(each)
                parts += batches
                if not leased.more:
                    batch = self._leased(leased, parts, member, joined)
                    arriving.add(batch, owed_bytes)
                    parts, owed_bytes = [], 0
            frames = await stream.read(SILENCE_S)

    def _parsed(
        self, data: bytes
    ) -> tuple[v1.JoinGroupResponse, v1.LeasedMessages | None, list[MessageBatch]]:
        try:
            scanned = scan_join_response(data)
            answer = parsed(v1.JoinGroupResponse, scanned.rest)
            head = scanned.leased
            leased = None if head is None else parsed(v1.LeasedMessages, head)
        except Exception as error:
            raise ProtocolBroken(f"{self.channels[0]}: {error}") from error
        batches = [MessageBatch(it, self._collection, TimeTick(0)) for it in scanned.batches]
        return answer, leased, batches

    def _leased(
        self,
        leased: v1.LeasedMessages,
        batches: list[MessageBatch],
        member: MemberStream,
        joined: v1.GroupJoined,
    ) -> LeasedBatch:
        if leased.span is None:
            raise ProtocolBroken(f"{self.channels[0]}: lease {leased.lease} has no span")
        span = TickSpan(TimeTick(leased.span.after), TimeTick(leased.span.upto))
        lease_s = joined.lease_ms / 1000
        until_s, mode = anyio.current_time() + lease_s, told_mode(joined.mode)
        lease = LeaseTerms(leased.lease, span, leased.times, lease_s, until_s, leased.alone, mode)
        return LeasedBatch(batches, self.channels[0], lease, member.settle)


class _Arriving:
    """Batches between the stream and the program; their number is bounded by the credit."""

    def __init__(self, member: MemberStream, deliveries: Deliveries[LeasedBatch]) -> None:
        self._member = member
        self._deliveries = deliveries
        self._batches: deque[tuple[LeasedBatch, int]] = deque()
        self._more = anyio.Event()

    def add(self, batch: LeasedBatch, size_bytes: int) -> None:
        self._batches.append((batch, size_bytes))
        self._more.set()

    async def hand_over(self) -> None:
        """Hand batches to the program one by one, and grant credit for each that it has room for.

        What has waited until its lease was over is left out: others have it by now.
        """
        while True:
            while not self._batches:
                self._more = anyio.Event()
                await self._more.wait()
            batch, size_bytes = self._batches.popleft()
            if batch.lease_s:
                await self._deliveries.put([batch])
            try:
                await self._member.grant(size_bytes)
            except OutcomeUnknown:
                return  # the stream is gone, and its reader says why


def _end_wait(answer: "asyncio.Future[TidemarkError | None]", deadline_s: float) -> None:
    if not answer.done():
        answer.set_result(OutcomeUnknown(f"no answer within {deadline_s} s"))


def _error(settled: v1.Settled) -> TidemarkError | None:
    if not settled.code:
        return None
    error = refusal(settled.code, settled.cause)
    if error.code is StreamingCode.UNKNOWN:
        return OutcomeUnknown(settled.cause)
    if isinstance(error, InvalidRequestSequence):
        return LeaseLost(settled.cause, error.code)
    return error
