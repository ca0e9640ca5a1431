"""One consumer group on one vchannel: leases its messages to members, and takes acknowledgements.

It decides by its book of leases, which is in memory; what is acknowledged is in the log. It waits
for nothing but the start of a reader: reads and writes are answered by messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from actors import Actor, ActorError, Context, Envelope
from broker.core.groups.group_rules import nack_refusal
from broker.core.groups.group_state import HeldAck
from broker.core.groups.lease_book import LeaseBook
from broker.core.groups.leases import Portion
from broker.core.groups.ordered_book import OrderedBook
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import GroupKey, GroupView
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import PChannelName
from broker.node.appender_messages import CloseTick
from broker.node.group_messages import (
    AckMessages,
    BeginLease,
    ExtendLease,
    GiveVChannel,
    GroupJoined,
    GroupMessage,
    JoinGroup,
    LeaseMessage,
    LeaveGroup,
    MemberMessage,
    MessagesCame,
    NackMessages,
    RejectMessages,
    StopGroup,
    TakeMessages,
    WatchOwnership,
)
from broker.node.groups.ack_writes import AckWrites, TakenAck
from broker.node.groups.counted_deliveries import CountedDeliveries
from broker.node.groups.given_up import GivenUp
from broker.node.groups.group_reader import Answer, GroupReader, position_or_refusal
from broker.node.groups.group_writer import GroupWriter
from broker.node.groups.leasing.ordered_leases import OrderedLeases
from broker.node.groups.leasing.portion_reading import LeaseParts, PortionReading
from broker.node.groups.leasing.shared_leases import SharedLeases
from broker.node.groups.timely_items import TimelyItems
from broker.node.groups.unread import UnreadPart
from broker.node.groups.waiting_members import WaitingMembers
from broker.node.groups.wake_timer import WakeTimer
from broker.node.scanner_messages import Delivery
from broker.node.state.channel_groups import RunningGroup
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel

IDLE_S = 30.0
"""Without members for so long it ends; the next member starts it again."""
RETRY_S = 0.05
CLOSE_S = 4.0
REFUSALS_MAX = 20
"""Reads that are refused in a row; then members hear of it."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """A timer: something was read or refused, a lease or a wait is over."""


LOOK = LookAgain()
_Message = GroupMessage | LookAgain
_Envelope = Envelope[_Message]


class GroupLeases(Actor[_Message]):
    """See the module."""

    _context: Context[_Message]
    _opened: OpenChannel
    _book: LeaseBook
    _leases: SharedLeases | OrderedLeases
    _takers: WaitingMembers
    _reader: GroupReader
    _unread: UnreadPart
    _acks: AckWrites
    _counted: CountedDeliveries
    _given_up: GivenUp
    _running: RunningGroup
    _timely: TimelyItems
    _wake: WakeTimer[_Message]

    def __init__(self, name: PChannelName, key: GroupKey, node: NodeRuntime) -> None:
        self._name = name
        self._key = key
        self._node = node
        self._reading: PortionReading | None = None
        self._answers: list[tuple[PortionReading, Answer]] = []
        self._refused = 0
        self._new_first = False
        """It is the turn of new messages: what came again was leased last."""
        self._begun = False
        self._busy_s = 0.0

    async def started(self, context: Context[_Message]) -> None:
        """Begin with everything above the floor; end when there is no such group any more."""
        self._context = context
        opened = self._node.open_channels.find(self._name)
        state = None if opened is None else opened.groups.table.groups.get(self._key)
        if opened is None or state is None:
            context.stop()
            return
        if opened.transactions.open_count:
            # What an earlier life has sent for a transaction must be held before this one leases.
            await opened.appender.ask(CloseTick(), deadline_s=CLOSE_S)
        await opened.groups.all_landed(self._key)
        self._opened = opened
        shared, closed = state.mode is GroupMode.SHARED, opened.tail.closed.tick
        book = LeaseBook(state, closed) if shared else OrderedBook(state, closed)
        self._book = book
        self._takers = WaitingMembers(book.is_member)
        self._timely = TimelyItems(self._node.headers, lambda: opened.tail.closed.tick)
        self._reader = GroupReader(context, opened, self._key, self._node)
        self._unread = UnreadPart(opened.tail, self._key.vchannel, context.self)
        writer = GroupWriter(opened, self._node, context.clock)

        def look(delay_s: float = 0.0) -> None:
            context.after(delay_s, LOOK)

        self._acks = AckWrites(self._key, writer, self._ack_settled, in_order=not shared)
        self._counted = CountedDeliveries(book, writer, look)
        parts = LeaseParts(self._takers, self._unread, self._timely, self._counted, self._acks)
        self._leases = (
            OrderedLeases(book, parts)
            if isinstance(book, OrderedBook)
            else SharedLeases(book, parts)
        )
        self._given_up = GivenUp(book, writer, (self._name, self._node), look, self._acks)
        self._busy_s = context.clock.monotonic_s()
        self._begun = True
        opened.groups.running[self._key] = self._running = RunningGroup(self._view, self._end_txn)
        self._wake = WakeTimer(context, LOOK)
        self._wake.at(self._busy_s + IDLE_S)
        if book.exceeded or state.dying:
            look()

    async def receive(self, batch: Sequence[_Envelope]) -> None:
        """Take what members say, then write acknowledgements, then serve who waits."""
        now_s = self._context.clock.monotonic_s()
        # Before what members say: a lease that is over is over, and what was not stored is left.
        expired = self._book.expire(now_s)
        self._acks.return_failed(self._book, now_s)
        self._counted.return_failed(now_s)
        for envelope in batch:
            match envelope.message:
                case LookAgain():
                    continue
                case MessagesCame(from_id):
                    self._unread.came(from_id)
                case request:
                    self._answer(envelope, request, now_s)
        self._acks.write()
        only_acks = all(isinstance(it.message, AckMessages) for it in batch)
        if only_acks and not expired and not self._acks_matter:
            self._busy_s = now_s
            return
        self._given_up.take_exceeded(now_s)
        await self._given_up.carry_out(self._context)
        await self._serve(now_s)
        self._rest(now_s)

    @property
    def _acks_matter(self) -> bool:
        """Whether one may give who waits something to take; most of a shared group do not."""
        shared = self._book.state.mode is GroupMode.SHARED
        return not shared or self._acks.waits or bool(self._takers and self._book.held_back)

    async def stopped(self) -> None:
        """Nothing describes it any more, and nothing reads for it."""
        if not self._begun:
            return
        closed = self._opened.tail.closed.tick
        self._opened.groups.ended(self._key, self._running, closed)
        self._reader.close()
        self._unread.close()

    def statistics(self) -> Mapping[str, int | float | str]:
        """Members, those that wait, and how often messages were delivered again."""
        # May be called at any time: until it has begun, there is no book.
        if not self._begun:
            return {}
        view = self._view()
        return {
            "vchannel": self._key.vchannel,
            "members": len(view.members),
            "waiting": len(self._takers),
            "leases": sum([it.leases for it in view.members]),
            "redelivered": view.redelivered,
            "expired": self._timely.expired,
            "floor": view.group.floor,
        }

    def _view(self) -> GroupView:
        now_s = self._context.clock.monotonic_s()
        members = self._book.members(self._takers.numbers, now_s)
        redelivered, expired = self._book.redelivered, self._timely.expired
        book, state = self._book, self._book.state.snapshot()
        first = book.first_left(now_s) if isinstance(book, OrderedBook) else None
        return GroupView(state, members, redelivered, expired=expired, first=first)

    # ---- what members say -------------------------------------------------------------------

    def _answer(self, envelope: _Envelope, request: MemberMessage, now_s: float) -> None:
        match request:
            case TakeMessages() as take:
                self._queue(envelope, take, now_s)
            case JoinGroup() as join:
                envelope.reply(self._join(join))
            case LeaveGroup(member):
                self._book.leave(member, now_s)
            case WatchOwnership() as watch:
                self._leases.watch(envelope, watch, now_s)
            case GiveVChannel() as give:
                self._leases.give(give)
            case StopGroup():
                self._stop_unless_used(envelope)
            case _ as said:
                self._settle(envelope, said, now_s)

    def _join(self, join: JoinGroup) -> GroupJoined | Refusal:
        member = self._book.join(join.name, join.identity)
        if isinstance(member, Refusal):
            return member
        return GroupJoined(member, self._book.state.lease_ms, self._book.state.mode)

    def _queue(self, envelope: _Envelope, take: TakeMessages, now_s: float) -> None:
        if not self._book.is_member(take.member):
            cause = f"member {take.member} has left group {self._key.name!r}; join again"
            envelope.reply(Refusal(StreamingCode.INVALID_REQUEST_SEQ, cause))
            return
        self._takers.add(envelope, take, now_s)

    def _settle(self, envelope: _Envelope, message: LeaseMessage, now_s: float) -> None:
        match message:
            case AckMessages() as ack:
                self._take_ack(envelope, ack)
            case NackMessages() as nack:
                envelope.reply(self._give_back(nack, now_s))
            case RejectMessages() as reject:
                self._given_up.reject(envelope, reject)
            case BeginLease() as begin:
                self._counted.begin(envelope, begin)
            case ExtendLease(member, lease):
                envelope.reply(self._book.extend(member, lease, now_s))
            case _:
                assert_never(message)

    def _take_ack(self, envelope: _Envelope, ack: AckMessages) -> None:
        times = self._book.times_of(ack.lease)
        taken = self._book.take_acked(ack.member, ack.lease, ack.spans, ack.txn)
        if isinstance(taken, Refusal):
            envelope.reply(taken)
        else:
            self._acks.add(TakenAck(envelope, ack, taken, times))

    def _ack_settled(self) -> None:
        """A write may let go what was held back, and one that failed returns messages."""
        if self._acks_matter:
            self._context.after(0.0, LOOK)

    def _give_back(self, nack: NackMessages, now_s: float) -> Refusal | None:
        refusal = nack_refusal(nack.delay_ms)
        if refusal is not None:
            return refusal
        due_s = now_s + nack.delay_ms / 1000
        return self._book.give_back(nack.member, nack.lease, nack.spans, due_s)

    def _stop_unless_used(self, envelope: _Envelope) -> None:
        if self._book.has_members:
            cause = f"group {self._key.name!r} has members on {self._key.vchannel}; stop them first"
            envelope.reply(Refusal(StreamingCode.RESOURCE_ACQUIRED, cause))
            return
        envelope.reply(None)
        self._context.stop()

    def _end_txn(self, held: Sequence[HeldAck] | None) -> None:
        """Called by the writer, between two steps of this actor or amid one that waits."""
        now_s = self._context.clock.monotonic_s()
        for each in held or ():
            self._book.let_go(each, now_s)
        # There is something to deliver, or room for new leases.
        self._context.after(0.0, LOOK)

    # ---- delivery ---------------------------------------------------------------------------

    async def _serve(self, now_s: float) -> None:
        answers, self._answers = self._answers, []
        for reading, answer in answers:
            if reading is self._reading:
                await self._take_answer(reading, answer, now_s)
        self._takers.answer_old(now_s)
        if not self._takers:
            return
        busy = self._reading
        if busy is not None and (self._new_first or busy.portion.returned is not None):
            return
        new_first = self._new_first and not self._unread.waits(now_s)
        portion = self._leases.portion(now_s, new_first=new_first)
        if portion is None:
            return
        # What comes again goes first, in turn with new messages: one that is nacked at once would
        # hold up all others. A read of new messages that waits for some is given up.
        if portion.returned is not None or (busy is None and not self._unread.waits(now_s)):
            await self._begin(portion)

    async def _begin(self, portion: Portion) -> None:
        known = None if portion.returned else self._unread.at
        cursor = known or await position_or_refusal(self._reader, portion.after)
        if isinstance(cursor, Refusal):
            self._reading, self._new_first = None, False
            self._book.put_back(portion)
            self._read_refused(cursor)
            return
        self._reading = PortionReading(portion, cursor)
        await self._pull(self._reading)

    async def _pull(self, reading: PortionReading) -> None:
        bytes_max = self._takers.bytes_max

        def answered(answer: Answer) -> None:
            self._answers.append((reading, answer))
            self._context.after(0.0, LOOK)

        try:
            await self._reader.pull(reading.cursor, bytes_max, answered)
        except ActorError as error:
            answered(error)

    async def _take_answer(self, reading: PortionReading, answer: Answer, now_s: float) -> None:
        if not isinstance(answer, Delivery):
            self._reading = self._unread.at = None
            self._new_first = False
            self._book.put_back(reading.portion)
            if isinstance(answer, Refusal):
                self._read_refused(answer)
            else:
                self._reader.lost()
                self._context.after(RETRY_S, LOOK)
            return
        self._refused = 0
        reading.items += answer.items
        reading.cursor = answer.cursor
        if answer.cursor.inside:
            # A lease has a transaction whole: its messages share one tick.
            await self._pull(reading)
            return
        self._reading = None
        if self._leases.lease(reading, now_s):
            self._busy_s = now_s
            self._new_first = self._leases.takes_turns and reading.portion.returned is not None
            return
        returned = reading.portion.returned
        if returned is None:
            self._new_first = False
            self._unread.reached(answer.cursor, found=False)
            self._let_go(reading)
        elif answer.cursor.tick >= returned.spans.end:
            self._let_go(reading)
        else:
            self._reading = reading
            await self._pull(reading)

    def _let_go(self, reading: PortionReading) -> None:
        """Settle ticks at which no message is left: the floor would stay below them."""
        passed = self._timely.passed(self._context.clock.monotonic_s())
        spans = self._book.nothing_left(reading.portion, reading.cursor.tick, passed)
        if spans:
            self._acks.add(TakenAck(None, AckMessages(0, 0, spans), spans, 1))
            self._acks.write()

    def _read_refused(self, refusal: Refusal) -> None:
        self._refused += 1
        if self._refused >= REFUSALS_MAX:
            self._takers.refuse(refusal)
            self._refused = 0
        self._context.after(RETRY_S, LOOK)

    # ---- time -------------------------------------------------------------------------------

    def _rest(self, now_s: float) -> None:
        """Set the timer for whatever ends first by itself."""
        # What is in flight may decide that messages die, which somebody has to carry out.
        if self._book.has_members or self._key in self._opened.groups.in_flight:
            self._busy_s = now_s
        elif now_s - self._busy_s >= IDLE_S:
            self._context.stop()
            return
        idle = None if self._book.has_members else self._busy_s + IDLE_S
        ends = (self._takers.next_s(), self._leases.tell(now_s), self._book.next_s(now_s), idle)
        if wakes := [it for it in ends if it is not None]:
            self._wake.at(min(wakes))
