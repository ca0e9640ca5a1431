"""Random changes of groups, and their records."""

import random

from broker.core.groups.group_changes import (
    GroupAltered,
    GroupChange,
    GroupCreated,
    GroupDropped,
    GroupSought,
    MessagesAcked,
    MessagesDying,
    MessagesTried,
    encode_change,
)
from broker.model.groups.consumer_group import DeliveryLimit, TickSpan
from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.message import GROUP_CHANGE
from broker.model.record import Record
from broker.model.txn import TxnPart

V = "by-dev-rootcoord-dml_0_7v0"
W = "by-dev-rootcoord-dml_0_8v0"
LIMIT = DeliveryLimit(3, W, "trains")
OUTSIDE = TxnPart(TxnId(0), 0, MessageId(0), 0)


def random_changes(rng: random.Random, count: int) -> list[tuple[str, GroupChange, TimeTick]]:
    found: list[tuple[str, GroupChange, TimeTick]] = []
    for tick in range(100, 100 + count):
        name = rng.choice("gh")
        low = rng.randrange(40)
        spans = tuple(
            TickSpan(TimeTick(low + 3 * n), TimeTick(low + 3 * n + rng.randrange(1, 4)))
            for n in range(rng.randrange(1, 4))
        )
        floor = rng.choice([None, TimeTick(rng.randrange(40))])
        kinds: list[GroupChange] = [
            MessagesAcked(name, spans),
            MessagesTried(name, spans, rng.randrange(1, 4)),
            MessagesDying(name, spans, "bad", 3),
            GroupCreated(name, 1000, floor, rng.choice([LIMIT, None])),
            GroupAltered(name, 2000, LIMIT),
            GroupSought(name, floor),
            GroupDropped(name),
        ]
        (change,) = rng.choices(kinds, [12, 4, 3, 2, 0.5, 1, 1])
        found.append((rng.choice([V, W]), change, TimeTick(tick)))
    return found


def record_of(vchannel: str, change: GroupChange, tick: TimeTick) -> Record:
    body = encode_change(change)
    return Record(
        Term(1),
        MessageId(tick),
        tick,
        MessageId(tick),
        GROUP_CHANGE,
        vchannel,
        (len(body),),
        body,
        txn=OUTSIDE,
    )
