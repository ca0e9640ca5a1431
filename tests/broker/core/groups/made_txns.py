"""Random logs with transactions that acknowledge, and the naive fold of such a log."""

import random
from dataclasses import dataclass, field

from broker.core.groups.group_changes import (
    AckedInTxn,
    GroupChange,
    GroupCreated,
    GroupDropped,
    GroupSought,
    MessagesAcked,
)
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.message import MessageType
from broker.model.record import Record
from broker.model.txn import TxnPart
from tests.broker.core.groups.made_changes import V, W, random_changes, record_of

KEEPALIVE_MS = 1000


@dataclass
class Step:
    """One record: a change of a group, or the begin or end of a transaction."""

    tick: TimeTick
    vchannel: str
    change: GroupChange | None = None
    txn: TxnId = TxnId(0)
    kind: int = 0


@dataclass
class MadeLog:
    """`steps` and their records; ids are ticks."""

    rng: random.Random
    steps: list[Step] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    open: dict[TxnId, str] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        self.steps.append(step)
        oldest = min([int(it) for it in self.open], default=int(step.tick))
        if step.change is not None:
            record = record_of(step.vchannel, step.change, step.tick)
        else:
            part = TxnPart(step.txn, KEEPALIVE_MS, MessageId(step.txn), 0)
            record = Record(
                Term(1),
                MessageId(step.tick),
                step.tick,
                MessageId(oldest),
                step.kind,
                step.vchannel,
                (1,),
                b"x",
                txn=part,
            )
        self.records.append(_confirming(record, oldest))
        if step.kind == MessageType.BEGIN_TXN:
            self.open[step.txn] = step.vchannel
        elif step.change is None:
            del self.open[step.txn]

    def grow(self, change: tuple[str, GroupChange, TimeTick]) -> None:
        vchannel, plain, tick = change
        rng, sort = self.rng, self.rng.random()
        if sort < 0.15:
            self.add(Step(tick, rng.choice([V, W]), None, TxnId(tick), MessageType.BEGIN_TXN))
        elif sort < 0.4 and self.open:
            txn = rng.choice(list(self.open))
            low = rng.randrange(40)
            spans = (TickSpan(TimeTick(low), TimeTick(low + rng.randrange(1, 5))),)
            acked = AckedInTxn(rng.choice("gh"), txn, spans, rng.randrange(1, 4))
            self.add(Step(tick, self.open[txn], acked))
        elif sort < 0.55 and self.open:
            txn = rng.choice(list(self.open))
            end = rng.choice([MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN])
            self.add(Step(tick, self.open[txn], None, txn, end))
        else:
            self.add(Step(tick, vchannel, plain))


def made_log(rng: random.Random, count: int = 60) -> MadeLog:
    log = MadeLog(rng)
    for change in random_changes(rng, count):
        log.grow(change)
    return log


def _confirming(record: Record, oldest: int) -> Record:
    return Record(
        record.term,
        record.base_id,
        record.base_tick,
        MessageId(oldest),
        record.kind,
        record.vchannel,
        record.sizes,
        record.body,
        record.txn,
    )


class NaiveGroup:
    """A group as a set of acknowledged ticks, and what each transaction has of it."""

    def __init__(self, floor: int) -> None:
        self.acked = set(range(1, floor + 1))
        self.held: dict[TxnId, set[int]] = {}


def naive_fold(steps: list[Step]) -> dict[GroupKey, NaiveGroup]:
    """One step after the other, from the first on."""
    groups: dict[GroupKey, NaiveGroup] = {}
    for step in steps:
        change = step.change
        if change is None:
            for group in groups.values():
                held = group.held.pop(step.txn, set())
                if step.kind == MessageType.COMMIT_TXN:
                    group.acked |= held
            continue
        key = GroupKey(step.vchannel, change.name)
        match change:
            case GroupCreated(_, _, floor):
                groups[key] = NaiveGroup(step.tick if floor is None else floor)
            case GroupDropped():
                groups.pop(key, None)
            case GroupSought(_, floor) if key in groups:
                groups[key] = NaiveGroup(step.tick if floor is None else floor)
            case MessagesAcked(_, spans) if key in groups:
                groups[key].acked |= ticks_of(spans)
            case AckedInTxn(_, txn, spans, _) if key in groups:
                groups[key].held.setdefault(txn, set()).update(ticks_of(spans))
    return groups


def ticks_of(spans: tuple[TickSpan, ...]) -> set[int]:
    return {tick for it in spans for tick in range(it.after + 1, it.upto + 1)}
