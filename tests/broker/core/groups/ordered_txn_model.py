"""A run of an ordered group whose members also acknowledge in transactions.

Such an acknowledgement is on its way for a while, so that the end of its transaction may overtake
it. Then it is refused, as by the writer of the log.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.core.groups.group_changes import AckedInTxn
from broker.model.failure import Refusal
from broker.model.ids import TimeTick, TxnId
from tests.broker.core.groups.ordered_model import OrderedRun
from tests.broker.core.groups.ordered_parts import KEY, Ack


@dataclass
class OrderedTxnRun(OrderedRun):
    """`flying`: acknowledgements in transactions that are on their way, the first one first."""

    flying: list[tuple[TxnId, Ack]] = field(default_factory=list)

    def restart(self) -> None:
        # A new Group has a tick closed first, so what an earlier life sent is placed, or refused.
        while self.flying:
            self.land_txn()
        super().restart()
        if self.rng.random() < 0.7:
            self.join()
            self.read(self.members, all_of_it=True)

    def ack_in_txn(self) -> None:
        """Some of a lease, often one after the other."""
        if not self.held:
            return
        number = self.rng.choice(list(self.held))
        held = self.held[number][1]
        txn = TxnId(self.tick)
        if self.txns and self.rng.random() < 0.7:
            txn = self.rng.choice(list(self.txns))
        if self.rng.random() < 0.3:
            self.fly(number, txn, self.some(held))
            return
        for tick in sorted(held)[: self.rng.randrange(1, 4)]:
            self.fly(number, txn, [tick])
            if self.rng.random() < 0.4:
                self.land_txn()

    def fly(self, number: int, txn: TxnId, some: list[int]) -> None:
        member, held, _ = self.held[number]
        times, spans = self.book.times_of(number), [self.up_to(number, it) for it in some]
        taken = self.book.take_acked(member, number, spans, txn)
        if isinstance(taken, Refusal):
            return
        self.tick += 1
        self.txns.setdefault(txn, set())
        self.flying.append((txn, Ack(member, number, taken, times, set(some))))
        self.release(number, held - set(some))

    def land_txn(self) -> None:
        """The first one is held from now on, or refused, as its transaction is over."""
        if not self.flying:
            return
        txn, ack = self.flying.pop(0)
        self.tick += 1
        if txn in self.txns:
            change = AckedInTxn("g", txn, ack.spans, ack.times)
            self.table.hold(KEY.vchannel, change, TimeTick(self.tick))
            self.txns[txn] |= ack.ticks
            return
        self.book.ack_failed(ack.member, ack.lease, ack.spans, self.now_s, ack.times)
        # The book looks at the order at the next step of the Group, which is this one.
        self.book.ready([], self.now_s)
        for number, lease in self.book._leases.items():
            ticks = self.held[number][1] if number in self.held else set[int]()
            ticks |= ack.ticks if number == ack.lease else set()
            left = {it for it in ticks if lease.left.has(TimeTick(it))}
            self.held[number] = (lease.member, left, lease.until_s)
        self.held = {it: self.held[it] for it in self.held if it in self.book._leases}

    def end_txn(self) -> None:
        """It commits only when all its acknowledgements are placed."""
        if not self.txns:
            return
        txn = self.rng.choice(list(self.txns))
        ticks = self.txns.pop(txn)
        self.tick += 1
        commits = all(it != txn for it, _ in self.flying) and self.rng.random() < 0.5
        ended = self.table.end_txn(txn, TimeTick(self.tick) if commits else None)
        if commits:
            self.acked |= ticks
            return
        for _, parts in ended:
            for each in parts:
                self.book.let_go(each, self.now_s)
        for number, (_, held, _) in list(self.held.items()):
            self.release(number, held - self.with_behind(ticks, held))

    def check_pair(self, tick: int, other: int, together: set[int]) -> None:
        super().check_pair(tick, other, together)
        flying = {it for _, ack in self.flying for it in ack.ticks}
        assert other > tick or other not in flying - self.acked, "one before it may come again"

    def may_refuse(self) -> bool:
        return bool(self.txns or self.flying) or super().may_refuse()

    def steps(self) -> list[tuple[Callable[[], object], float]]:
        return [
            *super().steps(),
            (self.ack_in_txn, 8),
            (self.land_txn, 3),
            (self.end_txn, 4),
            (self.restart, 0.5),
            (self.take, 12),
            (self.join, 2),
        ]

    def drain(self) -> None:
        while self.flying:
            self.land_txn()
        while self.txns:
            self.end_txn()
        super().drain()
