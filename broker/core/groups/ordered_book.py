"""The book of leases of an ordered group: who gets which messages next, in the order of each lane.

A lane is a key, or a whole vchannel. Of each lane one member at a time has messages, in order, and
the next ones are leased only when these are settled, durably: acknowledged, or given up. What comes
again, comes again before all that is behind it in its lane.

Every unit between the floor and the edge is kept until it is settled. Their number is limited: when
so many wait for one that nobody settles, the others wait, too.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final

from broker.core.groups.first_unsettled import first_unsettled
from broker.core.groups.group_rules import LEASES_MAX, SPANS_MAX, TRIED_MAX
from broker.core.groups.group_state import GroupState, HeldAck
from broker.core.groups.key_lanes import WHOLE
from broker.core.groups.lease_book import LeaseBook
from broker.core.groups.leases import NO_TXN, Lease, Portion, Returned
from broker.core.groups.ordered_units import (
    LATER,
    SETTLING,
    WAITING,
    OrderedUnits,
    Unit,
    mixed_refusal,
    order_refusal,
)
from broker.core.groups.slot_owners import KeyOwners, SlotOwners, VChannelOwner
from broker.core.groups.tick_spans import TickSpans
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import MemberView, TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.groups.unsettled import FirstUnsettled
from broker.model.ids import TimeTick, TxnId

KEYED_UNITS_MAX: Final = SPANS_MAX // 2 - 1
"""Of a group by key: each that is left may end a range of acknowledged ones."""
UNITS_MAX: Final = 1 << 15
"""Of a group by vchannel, which acknowledges in order."""

EVERYTHING: Final = TickSpan(TimeTick(0), TimeTick(1 << 64))
Position = tuple[TimeTick, tuple[int, ...]]
"""A tick with messages, and their lanes."""


class OrderedBook(LeaseBook):
    """See the module. Read what `portion_for` says, `learn` what is new, lease what `ready` has."""

    def __init__(self, state: GroupState, known_upto: TimeTick = TimeTick(0)) -> None:
        self.by_key = state.mode is GroupMode.BY_KEY
        self.units_max = KEYED_UNITS_MAX if self.by_key else UNITS_MAX
        self.owners: SlotOwners = KeyOwners() if self.by_key else VChannelOwner(state.key.vchannel)
        self._units = OrderedUnits()
        self._settling: dict[TimeTick, Unit] = {}
        self._of_lease: dict[int, dict[TimeTick, Unit]] = {}
        self._due_s: list[float] = []  # a heap of when delays are over
        self._unowned = TickSpans()
        self._mixed_up = False  # whether a lane may be, as an acknowledgement has failed
        super().__init__(state, known_upto)

    def join(self, name: str, identity: str = "") -> int | Refusal:
        member = super().join(name)
        if not isinstance(member, Refusal):
            self.owners.joined(member, identity or f"#{member}")
        return member

    def leave(self, member: int, now_s: float) -> None:
        for number in [it.number for it in self._leases.values() if it.member == member]:
            self._of_lease.pop(number)
        super().leave(member, now_s)
        self.owners.left(member)

    # ---- what to deliver --------------------------------------------------------------------

    def portion_for(self, members: Sequence[int], now_s: float) -> Portion | None:
        """What to read next for members that wait, the first one first; None for nothing."""
        if len(self._leases) >= LEASES_MAX:
            return None
        ready = [unit for units in self.ready(members, now_s).values() for unit in units]
        if ready:
            spans = TickSpans([it.span for it in ready])
            return Portion(next(iter(spans)).after, Returned(spans, 0.0, 0))
        # Of a vchannel nobody gets more before all is settled: it would only be read twice.
        if not self.by_key and (len(self._units) or self.owners.owner(WHOLE) not in members):
            return None
        self.edge = max(self.edge, self.state.floor)
        spans_left = SPANS_MAX // 2 - (self._spans if self.edge >= self.state.acked.end else 0)
        if len(self._units) >= self.units_max or spans_left <= 0:
            return None
        return Portion(self.edge)

    def unread(self, portion: Portion, reached: TimeTick) -> TickSpans:
        """Which ticks of a new portion are to be learned: also those that transactions hold."""
        return self._left(TickSpan(portion.after, max(portion.after, reached)))

    def learn(self, positions: Sequence[Position], portion: Portion, reached: TimeTick) -> bool:
        """Take up what was read of a new portion; False when that is more than there is room for.

        Then the next portion begins behind what there was room for.
        """
        room, after = self.units_max - len(self._units), portion.after
        for tick, lanes in positions[: max(0, room)]:
            unit = Unit(tick, TickSpan(after, tick), lanes)
            after = tick
            self._units.add(unit)
        fits = len(positions) <= room
        if fits and positions:
            unit.span = TickSpan(unit.span.after, reached)
        self.edge = reached if fits else after
        self._count_tried(TickSpan(portion.after, self.edge))
        return fits

    def ready(
        self, members: Sequence[int], now_s: float, span: TickSpan = EVERYTHING
    ) -> dict[int, list[Unit]]:
        """What of a span each of these members may get now in one lease: no lane goes to two."""
        self._catch_up()
        found: dict[int, list[Unit]] = {member: [] for member in members}
        blocked: set[int] = set()
        going: dict[int, int] = {}
        held, dying = self.state.held_spans, self.state.dying_spans
        settled: list[Unit] = []
        # One last delivery after the other: a message may kill the node, with all that began.
        has_last = any(it.alone for it in self._leases.values())
        for unit in self._units if members else ():
            free = unit.lease == WAITING and unit.due_s <= now_s and span.after < unit.tick
            free = free and unit.tick <= span.upto and blocked.isdisjoint(unit.lanes)
            if free and not held.has(unit.tick):
                member = self.owners.owner(unit.lanes[0]) if unit.lanes else members[0]
                taken = found.get(member)
                one = all(going.setdefault(lane, member) == member for lane in unit.lanes)
                if self._is_over(unit, dying):
                    settled.append(unit)
                    continue
                last = self._ends_with(unit)
                one = one and not (last and has_last)
                if taken is not None and one and self._goes_with(taken, unit):
                    taken.append(unit)
                    has_last = has_last or last
                    continue
            blocked.update(unit.lanes)
        for unit in settled:
            self._forget(unit, dying)
        return found

    def lease_units(self, member: int, units: Sequence[Unit], now_s: float) -> Lease:
        """Lease what was read of `ready`, in order."""
        left = TickSpans([span for unit in units for span in self._left(unit.span)])
        times = units[0].times + 1
        self.redelivered += times > 1
        self._leases_ever += 1
        number, until_s = self._leases_ever, now_s + self.state.lease_ms / 1000
        span = TickSpan(units[0].span.after, units[-1].span.upto)
        lease = Lease(number, member, span, left, times, now_s, until_s)
        lease.alone = self._ends_with(units[0])
        again = times > 1 or units[0].span.after < self._known_upto
        limited = self.state.limit is not None and len(self.state.tried) < TRIED_MAX
        lease.record = limited and again and not lease.alone
        self._leases[number] = self._members[member].leases[number] = lease
        self._of_lease[number] = {unit.tick: unit for unit in units}
        for unit in units:
            self._set(unit, number)
            unit.first_s = now_s if unit.first_s is None else unit.first_s
        return lease

    def gone(self, units: Sequence[Unit]) -> tuple[TickSpan, ...]:
        """These are not in the log any more, or too old: their spans, to be acknowledged."""
        for unit in units:
            self._set(unit, SETTLING)
        return tuple(TickSpans([span for unit in units for span in self._left(unit.span)]))

    def take_unowned(self) -> tuple[TickSpan, ...]:
        """Empty ticks that no unit has any more, to be acknowledged: they would hold the floor."""
        taken, self._unowned = tuple(self._unowned), TickSpans()
        return taken

    def put_back(self, portion: Portion) -> None:
        """Nothing to do: what is ready stays here until it is leased."""

    # ---- what members say -------------------------------------------------------------------

    def take_acked(
        self, member: int, number: int, spans: Sequence[TickSpan], txn: TxnId = NO_TXN
    ) -> tuple[TickSpan, ...] | Refusal:
        """As in the base. In the order of each lane, so that what is left comes in order."""
        self._catch_up()
        lease = self._held(member, number)
        taken = lease if isinstance(lease, Refusal) else self._taken(lease, spans)
        if isinstance(taken, Refusal):
            return taken
        mine = self._of_lease[number]
        units = self._units.within(taken)
        refusal = order_refusal(mine.values(), {it.tick for it in units})
        refusal = refusal or mixed_refusal(self._settling.values(), units, txn)
        if refusal is not None:
            return refusal
        done = super().take_acked(member, number, spans)
        if not isinstance(done, Refusal):
            for unit in units:
                mine.pop(unit.tick)
                unit.txn = txn
                self._set(unit, SETTLING)
        return done

    def ack_failed(
        self, member: int, number: int, spans: Iterable[TickSpan], now_s: float, times: int
    ) -> None:
        """As in the base. What is behind one that comes again by now comes again after it."""
        spans, lease = TickSpans(spans), self._leases.get(number)
        if lease is not None:
            # Not what a rollback has let go meanwhile, or what is acknowledged after all.
            units = [it for it in self._units.within(spans) if it.lease == SETTLING]
            spans = TickSpans([part for it in units for part in spans.within(it.span)])
        super().ack_failed(member, number, spans, now_s, times)
        self._mixed_up = True
        if lease is not None:
            mine = self._of_lease[number]
            for unit in [it for it in units if lease.left.has(it.tick)]:
                unit.txn = NO_TXN
                self._set(unit, number)
                mine[unit.tick] = unit
            self._of_lease[number] = {it: mine[it] for it in sorted(mine)}

    def give_back(
        self, member: int, number: int, spans: Sequence[TickSpan], due_s: float
    ) -> Refusal | None:
        """As in the base; with what is behind it in its lanes, which counts as not delivered."""
        lease = self._held(member, number)
        if isinstance(lease, Refusal):
            return lease
        taken = self._taken(lease, spans)
        if isinstance(taken, Refusal):
            return taken
        units = self._units.within(taken)
        for unit in units:
            del self._of_lease[number][unit.tick]
        self._settle(lease, taken)
        self._return(TickSpans(taken), due_s, lease.counted)
        self._take_back()
        return None

    def let_go(self, held: HeldAck, now_s: float) -> None:
        """As in the base. What was not learned yet is not held when it is."""
        spans = TickSpans(held.spans)
        self._take_out_held(spans)
        units = [it for it in self._units.within(spans) if it.lease == SETTLING]
        for unit in (returned := [it for it in units if self._left(it.span).has(it.tick)]):
            self._return(self._left(unit.span), now_s, held.times)
        if returned:
            self._take_back()
        # Empty ticks that were passed while they were held.
        spans.remove(TickSpan(self.edge, max(self.edge, spans.end)))
        for unit in self._units.reaching(spans):
            spans.remove(unit.span)
        self._disown(spans, self.state.dying_spans)

    # ---- time -------------------------------------------------------------------------------

    def next_s(self, now_s: float) -> float | None:
        while self._due_s and self._due_s[0] <= now_s:
            heappop(self._due_s)
        ends = [it.until_s for it in self._leases.values()] + self._due_s[:1]
        claim_s = self.owners.look(now_s)
        return min(ends if claim_s is None else [*ends, claim_s], default=None)

    def members(self, waiting: Iterable[int], now_s: float) -> tuple[MemberView, ...]:
        """As in the base, with how many slots each owns."""
        return tuple(
            [it.owning(self.owners.owned(it.number)) for it in super().members(waiting, now_s)]
        )

    def first_left(self, now_s: float) -> FirstUnsettled | None:
        """What has to be settled first; None for nothing."""
        room, held = self.units_max, self.state.held_spans
        return first_unsettled(self._units, room, held, now_s, by_key=self.by_key)

    # ---- units ------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Counts of deliveries are looked up when their messages are learned."""
        for tried in self.state.tried:
            self._spare(tried)

    def _count_tried(self, span: TickSpan) -> None:
        for tried in self.state.tried:
            spans = [part for each in tried.spans for part in TickSpans([each]).within(span)]
            waiting = [it for it in self._units.within(spans) if it.lease == WAITING]
            if waiting:
                left = [part for it in waiting for part in self._left(it.span)]
                self._return(TickSpans(left), 0.0, tried.times)

    def _goes_with(self, taken: Sequence[Unit], unit: Unit) -> bool:
        """Whether a lease that begins with these has room for this one: one count for all."""
        if not taken:
            return True
        return taken[0].times == unit.times and not self._ends_with(unit)

    def _ends_with(self, unit: Unit) -> bool:
        limit = self.state.limit
        return limit is not None and unit.times > 0 and unit.times + 1 >= limit.deliveries_max

    def _left(self, span: TickSpan) -> TickSpans:
        """What of a span is not acknowledged, and did not die before this life began."""
        after = max(span.after, self.state.floor)
        left = self.state.acked.missing(TickSpan(after, max(after, span.upto)))
        for apart in self._apart.within(span):
            left.remove(apart)
        return left

    def _set(self, unit: Unit, lease: int) -> None:
        if (unit.lease == WAITING) != (lease == WAITING):
            self.owners.took(unit.lanes, -1 if lease == WAITING else 1)
        unit.lease = lease
        if lease == SETTLING:
            self._settling[unit.tick] = unit
        else:
            self._settling.pop(unit.tick, None)

    def _forget(self, unit: Unit, dying: TickSpans) -> None:
        self._set(unit, WAITING)
        self._units.remove(unit)
        # An earlier life that settled it may have read in other steps: fewer empty ticks were its.
        if unit.span.upto > self.state.floor:
            self._disown([unit.span], dying)

    def _disown(self, spans: Iterable[TickSpan], dying: TickSpans) -> None:
        for left in [it for span in spans for it in self._left(span)]:
            for part in dying.missing(left):
                self._unowned.add(part)

    def _catch_up(self) -> None:
        """Forget units whose acknowledgement is durable, or that they die: others may follow."""
        dying = self.state.dying_spans if self._settling else TickSpans()
        for unit in list(self._settling.values()):
            if self._is_over(unit, dying):
                self._forget(unit, dying)
        if self._mixed_up:
            self._take_back()

    def _take_back(self) -> None:
        """Have what is on lease come again if one before it in its lanes does, or is elsewhere."""
        self._mixed_up = False
        first: dict[int, int] = {}
        behind: list[Unit] = []
        for unit in self._units:
            if unit.lease == SETTLING:
                continue
            at = unit.lease
            if any(first.setdefault(lane, at) != at for lane in unit.lanes):
                behind += [unit] if at > WAITING else []
                first.update(dict.fromkeys(unit.lanes, WAITING))
        for unit in behind:
            lease = self._leases[unit.lease]
            del self._of_lease[lease.number][unit.tick]
            left = TickSpans(lease.left.within(unit.span))
            self._settle(lease, left)
            self._return(left, 0.0, lease.times - 1)

    def _is_over(self, unit: Unit, dying: TickSpans) -> bool:
        """Whether it is settled, if only by an acknowledgement whose answer was lost."""
        state, tick = self.state, unit.tick
        return tick <= state.floor or state.acked.has(tick) or dying.has(tick)

    def _return(self, spans: TickSpans, due_s: float, times: int) -> None:
        units = self._units.within(spans)
        if not units:
            # Empty ticks, whose acknowledgement was not stored: they would hold the floor.
            # One for each: what lies between them has other owners.
            units = [Unit(it.upto, it, ()) for it in spans]
            for unit in units:
                self._units.add(unit)
        limit = self.state.limit
        dies = limit is not None and times >= limit.deliveries_max
        if limit is not None and times == limit.deliveries_max:
            dies = not self._spared.has(units[-1].tick)
        for unit in units:
            unit.times, unit.due_s, unit.txn = times, due_s, NO_TXN
            self._set(unit, SETTLING if dies else WAITING)
        if dies:
            self.exceeded.append(Returned(spans, due_s, times))
        elif due_s:
            heappush(self._due_s, due_s)

    def _taken(self, lease: Lease, spans: Sequence[TickSpan]) -> tuple[TickSpan, ...] | Refusal:
        """Whole units: what is empty before a message goes with it."""
        taken = super()._taken(lease, spans)
        if not spans or isinstance(taken, Refusal):
            lost = [it for it in self._units.within(spans) if it.lease != lease.number]
            return LATER if isinstance(taken, Refusal) and lost else taken
        units = [it for it in self._units.within(taken) if it.lease == lease.number]
        if not units:
            cause = f"no message of lease {lease.number} is at the ticks that are named"
            return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
        return tuple(TickSpans([part for it in units for part in lease.left.within(it.span)]))

    def _drop(self, lease: Lease) -> None:
        super()._drop(lease)
        self._of_lease.pop(lease.number, None)
