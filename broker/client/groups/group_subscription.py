"""A member of a group on one vchannel: what to ask of each stream, and what the answers mean."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import anyio

from broker.client.batch import MessageBatch
from broker.client.errors import (
    InvalidRequestSequence,
    LeaseLost,
    NoSuchGroup,
    OutcomeUnknown,
    ProtocolBroken,
    ServerRefusal,
    TidemarkError,
)
from broker.client.groups.leased_batch import LeasedBatch, LeaseTerms
from broker.client.groups.member_stream import MemberStream
from broker.client.groups.modes import told_mode
from broker.client.groups.vchannel_shares import VChannelShares
from broker.client.net.connection import Conversation
from broker.client.read.deliveries import Deliveries
from broker.client.read.resuming_reader import SILENCE_S, Held
from broker.client.refusal_kinds import refusal
from broker.core.naming import pchannel_of
from broker.model.failure import StreamingCode
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick
from schemas.encoding.frames import HEAD_BYTES, frame
from schemas.generated.tidemark import v1
from schemas.leased import scan_join_response
from schemas.message_bytes import encoded, parsed

JOIN = "/tidemark.v1.Groups/Join"
WHY_S = 1.0
"""So long a stream that cannot be written to is read on."""
QUIET_S = 25.0
"""A server sends something every 20 s; the ping of the connection finds a dead one sooner."""


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

        async def part(work: Callable[[], Awaitable[None]]) -> None:
            nonlocal failure
            try:
                await work()
            except OutcomeUnknown as error:
                # It could not be sent. What is read may say why, and that decides what is tried.
                await anyio.sleep(WHY_S)
                failure = failure or error
            except Exception as error:  # noqa: BLE001 - raised below, outside of the task group
                failure = failure or error
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(part, arriving.hand_over)
                tasks.start_soon(part, member.send_rest)
                await part(partial(self._read, stream, frames, member, arriving, heard))
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
                    if self._shares.told(vchannel, member.give, told.members, told.owner):
                        # Behind what the other streams have told by now.
                        asyncio.get_running_loop().call_soon(self._shares.decide)
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
            # A response with messages has nothing else; to parse nothing is not free.
            rest = scanned.rest
            answer = parsed(v1.JoinGroupResponse, rest) if rest else v1.JoinGroupResponse()
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

        What has waited until its lease was over is left out: others have it by now. Raises
        OutcomeUnknown when the stream breaks.
        """
        while True:
            while not self._batches:
                self._more = anyio.Event()
                await self._more.wait()
            batch, size_bytes = self._batches.popleft()
            if batch.lease_s:
                await self._deliveries.put([batch])
            await self._member.grant(size_bytes)


def _error(settled: v1.Settled) -> TidemarkError | None:
    if not settled.code:
        return None
    error = refusal(settled.code, settled.cause)
    if error.code is StreamingCode.UNKNOWN:
        return OutcomeUnknown(settled.cause)
    if isinstance(error, InvalidRequestSequence):
        return LeaseLost(settled.cause, error.code)
    return error
