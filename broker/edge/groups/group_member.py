"""Serve one member of a group: messages out within its credit, acknowledgements in.

The stream is bound to one life of the Group: when that ends, so does the stream, and a member that
comes back is a new one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from actors import ActorError, MailboxFull, Ref, Request
from broker.core.groups.group_changes import SPANS_MAX
from broker.core.naming import belongs_to, is_physical
from broker.core.security.grants import Action, Resource, ResourceKind
from broker.edge.groups.group_modes import encoded_mode
from broker.edge.groups.lease_delivery import TAKE_S, LeaseDelivery, TakingMember, group_ended
from broker.edge.groups.member_place import FindGroup, MemberPlace
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.incoming.request_reader import RequestReader
from broker.edge.rpc.middleware import Call, first_messages
from broker.edge.rpc.proxies import Proxy
from broker.edge.rpc.read_pace import ReadPace
from broker.edge.rpc.request_metadata import consumer_channel
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick, TxnId
from broker.node.directory_messages import Locate
from broker.node.group_messages import (
    AckMessages,
    BeginLease,
    ExtendLease,
    GiveVChannel,
    GroupJoined,
    GroupMessage,
    LeaseMessage,
    NackMessages,
    RejectMessages,
    WatchOwnership,
)
from broker.transport import ServerBatchStream
from schemas.acks import AckRequest, acknowledged_response, scan_ack_request
from schemas.encoding.frames import frame
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded

GROUP: Final = frozenset({Action.GROUP})
CONSUME: Final = frozenset({Action.CONSUME})
SETTLE_S: Final = 40.0
SETTLING_MAX: Final = 4096
"""Acknowledgements of one member that wait for their answers; then its requests are not read."""
MEMBER_LENGTH_MAX: Final = 255
GIVE_AGAIN_S: Final = 0.05
LIFE_S: Final = 20.0
"""Members take a stream for dead after 30 s without anything, and report it after 25 s. That the
server itself lives they learn by a ping of each connection, which costs less than each stream."""

R = TypeVar("R")

NOTHING: Final = v1.JoinGroupResponse()


async def serve_member(call: Call, directory: Proxy, find: FindGroup, limits: EdgeLimits) -> None:
    """Serve one stream from its handshake to its end. Raises Refused."""
    channel = consumer_channel(call.metadata)
    await directory.demand(Locate(channel.name, channel.term))
    # An empty answer says that this node serves the channel; a refusal would come instead.
    await call.stream.write_batch([b""])
    messages = await first_messages(call.stream, limits.idle_peer_s)
    if not messages:
        return
    requests = [await call.reader.read(it, v1.JoinGroupRequest) for it in messages]
    wanted = requests[0].open
    if wanted is None:
        raise invalid_argument("the first request of a Join stream must be open")
    call.audited.request = wanted
    if is_physical(wanted.vchannel) or not belongs_to(wanted.vchannel, channel.name):
        raise invalid_argument(f"{wanted.vchannel!r} is not a vchannel of {channel.name!r}")
    if len(wanted.member) > MEMBER_LENGTH_MAX:
        cause = f"a member's name has {len(wanted.member)} characters; at most {MEMBER_LENGTH_MAX}"
        raise invalid_argument(cause)
    if len(wanted.identity) > MEMBER_LENGTH_MAX:
        cause = f"an identity has {len(wanted.identity)} characters; at most {MEMBER_LENGTH_MAX}"
        raise invalid_argument(cause)
    await call.access.need(GROUP, [Resource(ResourceKind.GROUP, wanted.group)])
    await call.access.need_channel(CONSUME, wanted.vchannel)
    key = GroupKey(wanted.vchannel, wanted.group)
    place = MemberPlace(find, key, wanted.member, wanted.identity)
    try:
        with call.quotas.stream_of(call.identity):
            group, joined = await place.join()
            pace = ReadPace(call, wanted.vchannel)
            member = ServedMember(call.stream, group, joined, limits.consume_credit_bytes, pace)
            member.reader = call.reader
            await member.run(requests)
    finally:
        place.leave()


class ServedMember:
    """A member after its first request."""

    def __init__(
        self,
        stream: ServerBatchStream,
        group: Ref[GroupMessage],
        joined: GroupJoined,
        bytes_max: int,
        pace: ReadPace,
    ) -> None:
        self.reader = RequestReader()
        self._stream = stream
        self._group = group
        self._joined = joined
        taker = TakingMember(group, joined.member, bytes_max, joined.lease_ms)
        self._delivery = LeaseDelivery(stream, taker, self._write_framed, pace)
        self._settled: list[v1.Settled] = []
        self._settling = 0
        self._answers = anyio.Event()
        self._written = anyio.Event()
        self._failure: Exception | None = None
        self._writes = anyio.Lock(fast_acquire=True)
        self._done: list[int] = []
        # Kept: to find the clock of the loop anew for each answer costs more than to read it.
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time
        self._written_s = self._now_s()

    async def run(self, requests: list[v1.JoinGroupRequest]) -> None:
        """Run until the member half-closes, or the Group ends."""
        mode = encoded_mode(self._joined.mode)
        joined = v1.GroupJoined(
            member=self._joined.member, lease_ms=self._joined.lease_ms, mode=mode
        )
        await self._write(v1.JoinGroupResponse(joined=joined))
        for request in requests:
            await self._take(request)
        works = [self._take_requests, self._answer_settled, self._delivery.run, self._show_life]
        if self._joined.mode is GroupMode.BY_VCHANNEL:
            works.append(self._show_owner)
        async with anyio.create_task_group() as tasks:
            for work in works:
                tasks.start_soon(self._until_first, work, tasks.cancel_scope)
        if self._failure is not None:
            raise self._failure

    async def _until_first(
        self, work: Callable[[], Awaitable[None]], scope: anyio.CancelScope
    ) -> None:
        """The first part that ends, ends the stream; when it breaks, several fail at once."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - raised by `run`
            self._failure = self._failure or error
        scope.cancel()

    async def _take_requests(self) -> None:
        self._stream.take_at_once(self._taken_at_once)
        while frames := await self._stream.read_batch():
            for each in frames:
                ack = scan_ack_request(each)
                if ack is None or len(ack.spans) > SPANS_MAX:
                    await self._take(await self.reader.read(each, v1.JoinGroupRequest))
                else:
                    self._take_ack(ack)
            while self._settling >= SETTLING_MAX:
                self._written = anyio.Event()
                await self._written.wait()

    def _taken_at_once(self, message: bytes) -> bool:
        """Take a lone acknowledgement, if more may wait for their answers."""
        ack = scan_ack_request(message)
        if ack is None or len(ack.spans) > SPANS_MAX or self._settling >= SETTLING_MAX:
            return False
        self._take_ack(ack)
        return True

    async def _take(self, request: v1.JoinGroupRequest) -> None:
        if request.credit_bytes < 0:
            raise invalid_argument(f"a credit of {request.credit_bytes} bytes is below 0")
        self._delivery.grant(request.credit_bytes)
        for settle in request.settle:
            self._settle(settle.number, _request(self._joined.member, settle))
        if request.give is not None:
            await self._give(GiveVChannel(self._joined.member, request.give.identity))

    async def _give(self, give: GiveVChannel) -> None:
        """Pass it on, also to a Group whose mailbox is full. Later requests wait for it."""
        while True:
            try:
                self._group.tell(give)
            except MailboxFull:
                # The member asks once, and hears about the owner only when that has changed.
                await anyio.sleep(GIVE_AGAIN_S)
            except ActorError:
                return  # the stream ends with its Group
            else:
                return

    def _take_ack(self, ack: AckRequest) -> None:
        """`_take` for nearly every request of a member that settles messages one by one."""
        if ack.credit_bytes:
            self._delivery.grant(ack.credit_bytes)
        spans = tuple([TickSpan(TimeTick(after), TimeTick(upto)) for after, upto in ack.spans])
        self._settle(ack.number, AckMessages(self._joined.member, ack.lease, spans))

    async def _show_owner(self) -> None:
        """Send who is there, and who owns the vchannel, whenever that changes."""
        changes = 0
        while True:
            watch = WatchOwnership(self._joined.member, changes)
            answer = await self._asked(watch)
            if isinstance(answer, Refusal):
                raise Refused(answer.code, answer.cause)
            if answer.changes != changes:
                changes = answer.changes
                told = v1.VChannelOwnership(members=list(answer.members), owner=answer.owner)
                await self._write(v1.JoinGroupResponse(ownership=told))

    async def _show_life(self) -> None:
        """Send an empty response when nothing else was sent: a member may wait for long."""
        while True:
            await anyio.sleep_until(self._written_s + LIFE_S)
            if self._now_s() >= self._written_s + LIFE_S:
                await self._write(NOTHING)

    async def _asked(self, request: Request[R]) -> R:
        try:
            return await self._group.ask(request, deadline_s=TAKE_S)
        except ActorError as error:
            raise group_ended(error) from error

    # ---- acknowledgements -------------------------------------------------------------------

    def _settle(self, number: int, request: LeaseMessage | Refusal) -> None:
        def answered(answer: Refusal | Exception | None) -> None:
            if answer is None:
                self._acknowledge(number)
                return
            settled = _settled(number, answer)
            if not self._told_at_once(frame(encoded(v1.JoinGroupResponse(settled=[settled]))), 1):
                self._settled.append(settled)
                self._answers.set()

        self._settling += 1
        if isinstance(request, Refusal):
            answered(request)
            return
        try:
            self._group.ask_then(request, answered, deadline_s=SETTLE_S)
        except ActorError as error:
            answered(error)

    def _acknowledge(self, number: int) -> None:
        """Say that it is done: at once if nothing else is asked, else with those done just now."""
        self._done.append(number)
        if self._settling == 1:
            self._tell_done()
        elif len(self._done) == 1:
            self._loop.call_soon(self._tell_done)

    def _tell_done(self) -> None:
        done, self._done = self._done, []
        if done and not self._told_at_once(b"".join(map(acknowledged_response, done)), len(done)):
            self._settled += [v1.Settled(number=it) for it in done]
            self._answers.set()

    def _told_at_once(self, framed: bytes, count: int) -> bool:
        """Write `count` answers now; False: they have to wait. Most often nothing is before."""
        if self._settled or self._writes.locked() or not self._stream.write_at_once(framed):
            return False
        self._written_s = self._now_s()
        self._answered(count)
        return True

    async def _answer_settled(self) -> None:
        while True:
            while not self._settled:
                self._answers = anyio.Event()
                await self._answers.wait()
            settled, self._settled = self._settled, []
            await self._write(v1.JoinGroupResponse(settled=settled))
            self._answered(len(settled))

    def _answered(self, count: int) -> None:
        self._settling -= count
        self._written.set()

    async def _write(self, response: v1.JoinGroupResponse) -> None:
        await self._write_framed(frame(encoded(response)))

    async def _write_framed(self, framed: bytes) -> None:
        self._written_s = self._now_s()
        async with self._writes:
            await self._stream.write_framed(framed)


def _request(member: int, settle: v1.SettleMessages) -> LeaseMessage | Refusal:
    if len(settle.spans) > SPANS_MAX:
        cause = f"{len(settle.spans)} spans in one request; at most {SPANS_MAX}: send several"
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
    spans = tuple([TickSpan(TimeTick(it.after), TimeTick(it.upto)) for it in settle.spans])
    if settle.txn_id and settle.how != v1.Settlement.ACKNOWLEDGE:
        cause = f"transaction {settle.txn_id} is named; it takes part in acknowledgements only"
        return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
    match int(settle.how):
        case v1.Settlement.ACKNOWLEDGE:
            return AckMessages(member, settle.lease, spans, TxnId(settle.txn_id))
        case v1.Settlement.RETURN:
            return NackMessages(member, settle.lease, spans, settle.delay_ms)
        case v1.Settlement.EXTEND:
            return ExtendLease(member, settle.lease)
        case v1.Settlement.REJECT:
            return RejectMessages(member, settle.lease, spans, settle.cause)
        case v1.Settlement.BEGIN:
            return BeginLease(member, settle.lease)
        case other:
            cause = f"settlement {other} is not known to this release"
            return Refusal(StreamingCode.INVALID_ARGUMENT, cause)


def _settled(number: int, answer: Refusal | Exception | None) -> v1.Settled:
    if answer is None:
        return v1.Settled(number=number)
    if isinstance(answer, MailboxFull):
        cause = "too much waits for this group; nothing was acknowledged, retry"
        answer = Refusal(StreamingCode.INNER, cause)
    elif isinstance(answer, Exception):
        # It died or did not answer: the record may or may not be stored.
        answer = Refusal(StreamingCode.UNKNOWN, f"{answer}; it may or may not be acknowledged")
    return v1.Settled(number=number, code=int(answer.code), cause=answer.cause)
