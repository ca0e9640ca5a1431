"""Who has which messages of a group on lease, and what is to be delivered next.

Every tick above the floor is acknowledged, or in exactly one of these: a lease, what waits to come
again, a decision that is being written (an acknowledgement, or that messages die), what an open
transaction holds, what dies, what has had its last delivery, or above `edge`, where nothing was
leased yet. In memory only: a new book begins with everything above the floor, less what
transactions hold, and with the counts of deliveries that are recorded.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from broker.core.groups.group_rules import LEASES_MAX, MEMBERS_MAX, SPANS_MAX, TRIED_MAX
from broker.core.groups.group_state import GroupState, HeldAck
from broker.core.groups.leases import NO_TXN, BookMember, Lease, Portion, Returned
from broker.core.groups.tick_spans import TickSpans
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import MemberView, TickSpan, TriedSpans
from broker.model.ids import TimeTick, TxnId

FIRST_DELIVERY: Final = 1
_NEVER: Final = TimeTick(0)


class LeaseBook:
    """One group on one vchannel. `now_s` is of a clock that never goes back."""

    def __init__(self, state: GroupState, known_upto: TimeTick = TimeTick(0)) -> None:
        """`known_upto`: an earlier book may have leased messages up to this tick."""
        self.state = state
        self.edge = state.floor
        self.redelivered = 0
        self.exceeded: list[Returned] = []
        """Messages that had their last delivery; take them out to have them die."""
        self._known_upto = known_upto
        self._apart = TickSpans()
        """What is not delivered as new: it was tried before, or dies."""
        self._spared = TickSpans()
        """What had its last delivery when an earlier book ended. Another message may have ended it,
        so each has one delivery more."""
        self._members: dict[int, BookMember] = {}
        self._leases: dict[int, Lease] = {}
        self._returned: list[Returned] = []
        self._out: Returned | None = None
        """What `portion` has taken out of `_returned`, until it is leased or put back."""
        self.held_back = False
        """Whether the last `portion` left out what may come when a lease is settled."""
        self._members_ever = self._leases_ever = 0
        for dying in state.dying:
            self._set_apart(dying.spans)
        self._recover()

    @property
    def has_members(self) -> bool:
        return bool(self._members)

    def join(self, name: str, identity: str = "") -> int | Refusal:
        """A new member's number, or why it is one too many."""
        if len(self._members) >= MEMBERS_MAX:
            cause = f"group {self.state.key.name!r} has {MEMBERS_MAX} members already, the limit"
            return Refusal(StreamingCode.RESOURCE_ACQUIRED, cause)
        self._members_ever += 1
        self._members[self._members_ever] = BookMember(name)
        return self._members_ever

    def leave(self, member: int, now_s: float) -> None:
        """The member is gone: what it has on lease comes again at once."""
        gone = self._members.pop(member, None)
        if gone is not None:
            for lease in list(gone.leases.values()):
                self._leases.pop(lease.number)
                self._return(lease.left, now_s, lease.counted)

    def is_member(self, member: int) -> bool:
        return member in self._members

    # ---- what to deliver --------------------------------------------------------------------

    def portion(self, now_s: float, *, new_first: bool = False) -> Portion | None:
        """What to read for the next lease; None when nothing may be leased now.

        What returns goes first, unless `new_first`. It is taken out of the book: give it to
        `lease`, or back by `put_back`.
        """
        self.held_back = len(self._leases) >= LEASES_MAX
        if self.held_back:
            return None
        new = self._new_portion()
        self.held_back = new is None
        if new_first and new is not None:
            return new
        # One last delivery after the other: a message may kill the node, with all that began.
        has_last = any(it.alone for it in self._leases.values())
        for at, returned in enumerate(self._returned):
            if returned.due_s > now_s:
                continue
            if not (has_last and self._is_last(returned)):
                self._out = self._returned.pop(at)
                return Portion(next(iter(returned.spans)).after, returned)
            self.held_back = True
        return new

    def _new_portion(self) -> Portion | None:
        # What was given back in pieces to come much later is in memory as well, and what is to die.
        waiting = len(self._returned) + len(self.exceeded)
        self.edge = max(self.edge, self.state.floor)
        # Below the newest range a lease makes ranges fewer when it is acknowledged whole. A new
        # life that begins with many of them would stand still otherwise.
        spans = self._spans if self.edge >= self.state.acked.end else 0
        if spans + len(self._leases) + waiting >= SPANS_MAX // 2:
            return None
        return Portion(self.edge)

    def wanted(self, portion: Portion, reached: TimeTick) -> TickSpans:
        """Which ticks of a portion that was read up to `reached` are to be delivered."""
        # The floor may have passed the begin: what is acknowledged up to it is no span any more.
        after = max(portion.after, self.state.floor)
        span = TickSpan(after, max(after, reached))
        found = self.state.acked.missing(span)
        if portion.returned is not None:
            found = TickSpans([it for each in found for it in portion.returned.spans.within(each)])
        else:
            for apart in self._apart.within(span):
                found.remove(apart)
        self._take_out_held(found)
        return found

    def is_last(self, portion: Portion) -> bool:
        """Whether the messages are delivered for the last time: each on its own."""
        return portion.returned is not None and self._is_last(portion.returned)

    def _is_last(self, returned: Returned) -> bool:
        limit = self.state.limit
        return limit is not None and returned.times + 1 >= limit.deliveries_max

    def lease(self, member: int, portion: Portion, reached: TimeTick, now_s: float) -> Lease:
        """Lease what was read of a portion; what lies behind `reached` waits for the next one."""
        left, times = self.wanted(portion, reached), FIRST_DELIVERY
        if portion.returned is None:
            self.edge = reached
        else:
            self._keep_behind(portion.returned, reached)
            times = portion.returned.times + 1
            self.redelivered += 1
        self._leases_ever += 1
        until_s = now_s + self.state.lease_ms / 1000
        span = TickSpan(portion.after, reached)
        lease = Lease(self._leases_ever, member, span, left, times, now_s, until_s)
        lease.alone = self.is_last(portion)
        lease.record = self._is_recorded(lease, portion)
        self._leases[lease.number] = self._members[member].leases[lease.number] = lease
        return lease

    def put_back(self, portion: Portion) -> None:
        """The portion was not leased."""
        if portion.returned is not None:
            self._out = None
            self._returned.insert(0, portion.returned)

    def nothing_left(
        self, portion: Portion, reached: TimeTick, passed: TimeTick = _NEVER
    ) -> tuple[TickSpan, ...]:
        """Ticks of a portion without messages, which would hold the floor: to be acknowledged.

        Of a returned portion what the log no longer holds; of a new one what lies before something
        that is acknowledged, or held by a transaction, or up to `passed`, where messages were left
        out for good. No member has any of them.
        """
        if portion.returned is not None:
            gone = tuple(self.wanted(portion, reached))
            self._keep_behind(portion.returned, reached)
            return gone
        upto = min(reached, max(passed, self.state.end))
        gone = tuple(self.wanted(portion, upto))
        self.edge = max(self.edge, upto)
        return gone

    # ---- what members say -------------------------------------------------------------------

    def take_acked(
        self, member: int, number: int, spans: Sequence[TickSpan], txn: TxnId = NO_TXN
    ) -> tuple[TickSpan, ...] | Refusal:
        """Take the spans (none: all that is left) out of a lease, to be written as acknowledged."""
        lease = self._held(member, number)
        if isinstance(lease, Refusal):
            return lease
        taken = self._taken(lease, spans)
        if isinstance(taken, Refusal):
            return taken
        # What acknowledges all of a lease makes fewer spans, and must always be possible.
        if spans and self._spans + len(taken) > SPANS_MAX:
            return Refusal(
                StreamingCode.RESOURCE_ACQUIRED,
                f"{self._spans} acknowledged ranges lie above message(s) that are not"
                " acknowledged, the limit; acknowledge older messages, or whole batches",
            )
        self._settle(lease, taken)
        return taken

    def ack_failed(
        self, member: int, number: int, spans: Iterable[TickSpan], now_s: float, times: int
    ) -> None:
        """An acknowledgement was not stored: the member still has the messages, or they return."""
        failed, lease = TickSpans(spans), self._leases.get(number)
        # It may be stored: then the end of its transaction may have returned them already.
        self._take_out_owned(failed)
        if lease is not None:
            assert lease.member == member
            for span in failed:
                lease.left.add(span)
        elif failed:
            self._return(failed, now_s, times)

    def let_go(self, held: HeldAck, now_s: float) -> None:
        """A transaction has ended without its acknowledgement: the messages come again at once.

        Those above `edge` come as new ones.
        """
        spans = TickSpans(held.spans)
        spans.remove(TickSpan(self.edge, max(self.edge, spans.end)))
        # An acknowledgement whose answer was lost may be held and on lease again.
        self._take_out_owned(spans)
        self._take_out_held(spans)
        if spans:
            self._return(spans, now_s, held.times)

    def give_back(
        self, member: int, number: int, spans: Sequence[TickSpan], due_s: float
    ) -> Refusal | None:
        """The member did not process the spans (none: all that is left): they come again."""
        lease = self._held(member, number)
        if isinstance(lease, Refusal):
            return lease
        taken = self._taken(lease, spans)
        if isinstance(taken, Refusal):
            return taken
        self._settle(lease, taken)
        self._return(TickSpans(taken), due_s, lease.counted)
        return None

    def extend(self, member: int, number: int, now_s: float) -> Refusal | None:
        """The lease begins anew."""
        lease = self._held(member, number)
        if isinstance(lease, Refusal):
            return lease
        lease.until_s = now_s + self.state.lease_ms / 1000
        return None

    def begin(self, member: int, number: int) -> Lease | Refusal:
        """The member begins to process a lease that it has."""
        return self._held(member, number)

    def begun(self, lease: Lease) -> bool:
        """That it has begun is durable, so it counts; False when the lease ended meanwhile."""
        lease.begun = True
        return self._leases.get(lease.number) is lease

    def not_given(self, lease: Lease, now_s: float) -> None:
        """Its count could not be recorded, so the member does not get it."""
        if self._leases.get(lease.number) is lease:
            self._drop(lease)
            self._return(lease.left, now_s, lease.times - 1)

    def times_of(self, number: int) -> int:
        """How often the messages of a lease count as delivered."""
        lease = self._leases.get(number)
        return FIRST_DELIVERY if lease is None else lease.counted

    # ---- time -------------------------------------------------------------------------------

    def expire(self, now_s: float) -> int:
        """Return what is on leases that are over; how many these are."""
        over = [it for it in self._leases.values() if it.until_s <= now_s]
        for lease in over:
            self._members[lease.member].ran_out += 1
            self._drop(lease)
            self._return(lease.left, now_s, lease.counted)
        return len(over)

    def next_s(self, now_s: float) -> float | None:
        """When a lease ends or a delay is over; None: nothing happens by itself.

        What is due already waits for a member, and not for a time.
        """
        due = [it.due_s for it in self._returned if it.due_s > now_s]
        return min([it.until_s for it in self._leases.values()] + due, default=None)

    def members(self, waiting: Iterable[int], now_s: float) -> tuple[MemberView, ...]:
        """Every member; `waiting`: those that wait for messages."""
        idle = set(waiting)
        return tuple(
            [
                MemberView(
                    member.name,
                    number,
                    number in idle,
                    len(member.leases),
                    max([now_s - it.since_s for it in member.leases.values()], default=0.0),
                    ran_out=member.ran_out,
                )
                for number, member in self._members.items()
            ]
        )

    def _recover(self) -> None:
        """Take up what was delivered before, as far as that is recorded."""
        for tried in self.state.tried:
            spans = TickSpans(tried.spans)
            self._take_out_held(spans)
            if spans:
                self._set_apart(spans)
                self._spare(tried)
                self._return(spans, 0.0, tried.times)

    def _spare(self, tried: TriedSpans) -> None:
        limit = self.state.limit
        if limit is not None and tried.times == limit.deliveries_max:
            for span in tried.spans:
                self._spared.add(span)

    def _take_out_owned(self, spans: TickSpans) -> None:
        """Leave what is on a lease, or waits to come again or to die: it has its one owner."""
        for owned in (
            *(it.left for it in self._leases.values()),
            *(it.spans for it in (*self._returned, *self.exceeded)),
            *([] if self._out is None else [self._out.spans]),
        ):
            for span in owned:
                spans.remove(span)

    def _take_out_held(self, spans: TickSpans) -> None:
        for held in self.state.held:
            for span in held.spans:
                spans.remove(span)

    @property
    def _spans(self) -> int:
        return len(self.state.acked) + self.state.held_count

    def _held(self, member: int, number: int) -> Lease | Refusal:
        lease = self._leases.get(number)
        if lease is not None and lease.member == member:
            return lease
        return Refusal(
            StreamingCode.INVALID_REQUEST_SEQ,
            f"lease {number} is over, settled, or of another member: its messages may be delivered"
            " again; process those that come",
        )

    def _taken(self, lease: Lease, spans: Sequence[TickSpan]) -> tuple[TickSpan, ...] | Refusal:
        if not spans:
            return tuple(lease.left)
        taken: list[TickSpan] = []
        for span in spans:
            inside = lease.left.within(span)
            if not inside or span.after < lease.span.after or span.upto > lease.span.upto:
                return Refusal(
                    StreamingCode.INVALID_ARGUMENT,
                    f"ticks ({span.after}, {span.upto}] are not on lease {lease.number}, or were"
                    " acknowledged before",
                )
            taken += inside
        # One span, the usual case of a member that settles one by one, leaves nothing to join.
        return tuple(taken if len(spans) == 1 else TickSpans(taken))

    def _settle(self, lease: Lease, spans: Iterable[TickSpan]) -> None:
        self._members[lease.member].ran_out = 0
        for span in spans:
            lease.left.remove(span)
        if not lease.left:
            self._drop(lease)

    def _drop(self, lease: Lease) -> None:
        del self._leases[lease.number]
        del self._members[lease.member].leases[lease.number]

    def _return(self, spans: TickSpans, due_s: float, times: int) -> None:
        assert spans, "a lease without messages"
        limit = self.state.limit
        dies = limit is not None and times >= limit.deliveries_max
        if limit is not None and times == limit.deliveries_max and self._spared.has(spans.end):
            dies = False
        (self.exceeded if dies else self._returned).append(Returned(spans, due_s, times))

    def _set_apart(self, spans: Iterable[TickSpan]) -> None:
        for span in spans:
            self._apart.add(span)

    def _is_recorded(self, lease: Lease, portion: Portion) -> bool:
        """Whether a count in memory is not enough: a first delivery need not be recorded."""
        again = portion.returned is not None or portion.after < self._known_upto
        limited = self.state.limit is not None and len(self.state.tried) < TRIED_MAX
        return limited and again and not lease.alone

    def _keep_behind(self, returned: Returned, reached: TimeTick) -> None:
        self._out = None
        rest = TickSpans(returned.spans)
        rest.remove(TickSpan(TimeTick(0), reached))
        if rest:
            self._returned.insert(0, Returned(rest, returned.due_s, returned.times))
