"""One run of an ordered group against what it promises, kept in the most naive way.

A message is a tick with keys: one, none, or several in a transaction. The model remembers who has
which messages, and what is acknowledged or given up; each delivery is checked against all of that.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.core.groups.group_changes import (
    MessagesAcked,
    MessagesDying,
    MessagesTried,
)
from broker.core.groups.key_lanes import WHOLE
from broker.core.groups.leases import Lease, Portion
from broker.core.groups.ordered_book import OrderedBook
from broker.core.groups.ordered_units import Unit
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import DeliveryLimit, TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick, TxnId
from tests.broker.core.groups.ordered_parts import (
    KEY,
    LEASE_S,
    Ack,
    has,
    keys_apart,
    ordered_table,
    span,
)

DELIVERIES_MAX = 3
KEYS = 5
"""So few that they meet often."""


@dataclass
class OrderedRun:
    """`log`: the keys of each tick. `held`: by lease, its member, its messages and its end."""

    rng: random.Random
    mode: GroupMode
    limited: bool = False
    log: dict[int, frozenset[int]] = field(default_factory=dict)
    end: int = 1
    acked: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    held: dict[int, tuple[int, set[int], float]] = field(default_factory=dict)
    writing: list[Ack] = field(default_factory=list)
    late: list[Ack] = field(default_factory=list)
    """Written by an earlier life: stored later, or never."""
    txns: dict[TxnId, set[int]] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)
    given: dict[int, int] = field(default_factory=dict)
    now_s: float = 0.0
    tick: int = 1_000_000

    def __post_init__(self) -> None:
        limit = DeliveryLimit(DELIVERIES_MAX, KEY.vchannel, "o") if self.limited else None
        self.table = ordered_table(self.mode, limit)
        self.state = self.table.groups[KEY]
        self.start(TimeTick(0))

    def start(self, known_upto: TimeTick) -> None:
        self.book = OrderedBook(self.state, known_upto)
        self.book.units_max = self.rng.choice([3, 10, 100])

    # ---- what happens -----------------------------------------------------------------------

    def restart(self) -> None:
        """Whatever is in memory is gone; what is being written may be stored, now or later."""
        plain = [it for it in self.writing if not it.dying]
        # Later ones were not sent yet. What an earlier life sent is stored before, or never.
        self.late = plain[:1]
        for each in self.writing:
            if each.dying and self.rng.random() < 0.5:
                self.land(each)
        self.start(TimeTick(self.end))
        self.held, self.writing, self.members = {}, [], []

    def land_late(self) -> None:
        for each in self.late:
            if self.rng.random() < 0.5:
                self.land(each)
        self.late = []

    def land(self, ack: Ack) -> None:
        self.tick += 1
        if ack.dying:
            change = MessagesDying("g", ack.spans, "poison", ack.times)
            self.table.apply(KEY.vchannel, change, TimeTick(self.tick))
            self.dead |= ack.ticks - self.acked
        else:
            self.settle(ack.spans, ack.ticks)

    def settle(self, spans: tuple[TickSpan, ...], ticks: set[int]) -> None:
        self.tick += 1
        self.table.apply(KEY.vchannel, MessagesAcked("g", spans), TimeTick(self.tick))
        self.acked |= ticks

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            self.end += self.rng.randrange(1, 4)
            sort = self.rng.random()
            count = 1 if sort < 0.8 else (0 if sort < 0.9 else self.rng.randrange(2, 4))
            self.log[self.end] = frozenset(self.rng.sample(range(KEYS), count))

    def lanes(self, tick: int) -> frozenset[int]:
        """As far apart that different members own them."""
        by_key = self.mode is GroupMode.BY_KEY
        return frozenset([50 * it for it in self.log[tick]] if by_key else [WHOLE])

    def take(self) -> bool:
        """Read a portion and lease it to all who own some; False when there was nothing to do."""
        waiting = self.rng.sample(self.members, self.rng.randrange(len(self.members) + 1))
        return self.read(waiting, self.rng.random() < 0.5)

    def read(self, waiting: list[int], all_of_it: bool) -> bool:
        portion = self.book.portion_for(waiting, self.now_s)
        self.settle_unowned()
        if portion is None or not waiting:
            return False
        last = self.end if portion.returned is None else portion.returned.spans.end
        if portion.after >= last:
            return False
        reached = last if all_of_it else self.rng.randint(portion.after + 1, last)
        if portion.returned is None and not self.learn(portion, reached):
            return False
        if self.rng.random() < 0.1 and not all_of_it:
            self.interrupt()
        upto = TimeTick(min(reached, self.book.edge))
        ready = self.book.ready(waiting, self.now_s, TickSpan(portion.after, upto))
        for member, units in ready.items():
            if units and not any(it.tick in self.log for it in units):
                self.settle(self.book.gone(units), set())
            elif units and self.book.is_member(member):
                self.deliver(member, self.book.lease_units(member, units, self.now_s), units)
        return True

    def settle_unowned(self) -> None:
        """Ticks that nobody has, so no message is among them; it may fail."""
        spans = self.book.take_unowned()
        assert not {it for it in self.log if has(spans, it)} - self.acked
        if spans and self.rng.random() < 0.8:
            self.settle(spans, set())
        elif spans:
            self.book.ack_failed(0, 0, spans, self.now_s, 1)

    def interrupt(self) -> None:
        """While a read is on its way."""
        self.rng.choice([self.answer, self.ack, self.wait, self.join])()

    def learn(self, portion: Portion, reached: int) -> bool:
        wanted = self.book.unread(portion, TimeTick(reached))
        found = [it for it in self.log if wanted.has(TimeTick(it))]
        if not found:
            gone = self.book.nothing_left(portion, TimeTick(reached))
            if gone:
                self.settle(gone, set())
            return False
        positions = [(TimeTick(it), tuple(sorted(self.lanes(it)))) for it in found]
        self.book.learn(positions, portion, TimeTick(reached))
        return True

    def deliver(self, member: int, lease: Lease, units: list[Unit]) -> None:
        ticks = [int(it.tick) for it in units]
        assert set(ticks) == {it for it in self.log if lease.left.has(TimeTick(it))}
        assert ticks == sorted(ticks)
        for tick in ticks:
            assert tick not in self.acked, "delivered though acknowledged"
            assert tick not in self.dead, "delivered though it is given up"
            assert all(tick not in held for held in self.txns.values()), "a transaction holds it"
            for other in self.log:
                if other != tick and keys_apart(self.lanes(tick), self.lanes(other)):
                    continue
                self.check_pair(tick, other, set(ticks))
        if lease.record:
            change = MessagesTried("g", tuple(lease.left), lease.times)
            self.tick += 1
            self.table.apply(KEY.vchannel, change, TimeTick(self.tick))
        if lease.alone:
            assert len(ticks) == 1
            assert self.book.begun(lease)
            assert [it.alone for it in self.book._leases.values()].count(True) == 1
        self.held[lease.number] = (member, set(ticks), lease.until_s)

    def check_pair(self, tick: int, other: int, together: set[int]) -> None:
        """`other` is of the same key as `tick`, which is being delivered."""
        outstanding = {it for _, held, _ in self.held.values() for it in held}
        outstanding |= {it for ack in self.writing for it in ack.ticks}
        outstanding |= {it for held in self.txns.values() for it in held}
        assert other not in outstanding - self.acked - self.dead, "a key is at two places"
        if other <= tick:
            done = other in self.acked or other in self.dead
            assert done or other in together, "one before it is not settled"
        else:
            assert other not in self.acked, "one behind it is acknowledged already"

    # ---- what members say -------------------------------------------------------------------

    def ack(self) -> None:
        if not self.held:
            return
        number = self.rng.choice(list(self.held))
        member, held, _ = self.held[number]
        some = sorted(held) if self.rng.random() < 0.5 else self.some(held)
        spans = [] if len(some) == len(held) else [self.up_to(number, it) for it in some]
        times, dying = self.book.times_of(number), self.limited and self.rng.random() < 0.1
        taken = self.book.take_acked(member, number, spans)
        if isinstance(taken, Refusal):
            assert not self.in_order(some, held) or self.may_refuse(), taken
            return
        assert self.in_order(some, held) or not spans, "acknowledged out of order"
        assert {it for it in held if has(taken, it)} == set(some)
        self.writing.append(Ack(member, number, taken, times, set(some), dying))
        self.release(number, held - set(some))

    def may_refuse(self) -> bool:
        """Whether earlier ones of a key may be acknowledged in another way."""
        return bool(self.writing)

    def some(self, held: set[int]) -> list[int]:
        return sorted(self.rng.sample(sorted(held), self.rng.randrange(1, len(held) + 1)))

    def in_order(self, some: list[int], held: set[int]) -> bool:
        return all(
            keys_apart(self.lanes(tick), self.lanes(other))
            for tick in some
            for other in held - set(some)
            if other < tick
        )

    def up_to(self, number: int, tick: int) -> TickSpan:
        """The message with what is before it, or without."""
        lease = self.book._leases[number]
        before = max([it for it in self.log if it < tick], default=0)
        low = max(self.rng.choice([before, tick - 1]), lease.span.after)
        return span(low, tick)

    def release(self, number: int, rest: set[int]) -> None:
        member, _, until_s = self.held.pop(number)
        if rest:
            self.held[number] = (member, rest, until_s)

    def answer(self) -> None:
        """The first one is written. Of acknowledgements all behind one that fails fail, too."""
        if not self.writing:
            return
        first = self.writing.pop(0)
        if self.rng.random() < 0.8:
            self.land(first)
            return
        failed = [first]
        if not first.dying:
            failed += [it for it in self.writing if not it.dying]
            self.writing = [it for it in self.writing if it.dying]
        for each in failed:
            self.book.ack_failed(each.member, each.lease, each.spans, self.now_s, each.times)
            if each.lease in self.held:
                self.held[each.lease][1].update(each.ticks)
            elif each.lease in self.book._leases:
                lease = self.book._leases[each.lease]
                self.held[each.lease] = (each.member, set(each.ticks), lease.until_s)

    def give_back(self) -> None:
        """What is behind it in its keys goes with it."""
        if not self.held:
            return
        number = self.rng.choice(list(self.held))
        member, held, _ = self.held[number]
        some = self.some(held)
        due_s = self.now_s + self.rng.choice([0, 5])
        spans = [self.up_to(number, it) for it in some]
        assert self.book.give_back(member, number, spans, due_s) is None
        self.release(number, held - self.with_behind(set(some), held))

    def with_behind(self, ticks: set[int], held: set[int]) -> set[int]:
        """These, and what of the others comes behind them in their keys."""
        going = set(ticks)
        for tick in sorted(held - going):
            if any(it < tick and not keys_apart(self.lanes(it), self.lanes(tick)) for it in going):
                going.add(tick)
        return going

    def extend(self) -> None:
        if self.held:
            number = self.rng.choice(list(self.held))
            member, held, _ = self.held[number]
            assert self.book.extend(member, number, self.now_s) is None
            self.held[number] = (member, held, self.now_s + LEASE_S)

    # ---- time, members ----------------------------------------------------------------------

    def wait(self) -> None:
        self.now_s += self.rng.choice([0.3, 1, 4, 11])
        over = [it for it, (_, _, until_s) in self.held.items() if until_s <= self.now_s]
        self.book.expire(self.now_s)
        for number in over:
            del self.held[number]
        self.book.next_s(self.now_s)

    def join(self) -> None:
        number = self.book.join("m", f"identity {self.rng.randrange(6)}")
        assert isinstance(number, int)
        self.members.append(number)

    def leave(self) -> None:
        if self.members:
            member = self.members.pop(self.rng.randrange(len(self.members)))
            self.book.leave(member, self.now_s)
            self.held = {it: held for it, held in self.held.items() if held[0] != member}

    def give(self) -> None:
        if self.members:
            identity = f"identity {self.rng.randrange(6)}"
            self.book.owners.give(self.rng.choice(self.members), identity)

    def die(self) -> None:
        """What had its last delivery is given up; its decision is written as others are."""
        while self.book.exceeded:
            last = self.book.exceeded.pop(0)
            ticks = {it for it in self.log if has(tuple(last.spans), it)}
            self.writing.append(Ack(0, 0, tuple(last.spans), last.times, ticks, dying=True))

    def steps(self) -> list[tuple[Callable[[], object], float]]:
        return [
            (self.append, 4),
            (self.take, 9),
            (self.ack, 6),
            (self.answer, 6),
            (self.give_back, 2),
            (self.extend, 1),
            (self.wait, 2),
            (self.join, 2),
            (self.leave, 1.2),
            (self.give, 1),
            (self.restart, 0.3),
            (self.land_late, 0.5),
        ]

    def step(self) -> None:
        chosen, weights = zip(*self.steps(), strict=True)
        self.rng.choices(chosen, weights)[0]()
        self.die()
        assert not {it for it in self.log if it <= self.state.floor} - self.acked - self.dead

    def drain(self) -> None:
        """Every member does its work: all that is left comes, and the floor passes it."""
        self.land_late()
        self.now_s += 100
        self.book.expire(self.now_s)
        self.held = {}
        self.join()
        for _ in range(20 * len(self.log) + 20):
            while self.writing:
                self.answer()
            self.book.next_s(self.now_s)
            self.now_s += 1
            self.die()
            moved = self.read(self.members, all_of_it=True)
            for number, (member, ticks, _) in list(self.held.items()):
                taken = self.book.take_acked(member, number, ())
                assert not isinstance(taken, Refusal), taken
                del self.held[number]
                self.settle(taken, ticks)
            if not moved and not self.writing and set(self.log) <= self.acked | self.dead:
                break
        assert set(self.log) <= self.acked | self.dead, "something is never delivered"
        for each in list(self.state.dying):
            self.settle(each.spans, set())
        for _ in range(20):
            self.now_s += 1
            self.read(self.members, all_of_it=True)
        assert self.state.floor >= max(self.log, default=0), "empty ticks hold the floor"
