"""Leases of a group, and what is between them: what a book of leases is made of."""

from dataclasses import dataclass, field
from typing import Final

from broker.core.groups.tick_spans import TickSpans
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick, TxnId

NO_TXN: Final = TxnId(0)


@dataclass(slots=True)
class Lease:
    """Messages that one member has until `until_s`. `left`: what it has not settled.

    `span`: from the end of the lease before it. `times`: how often these were delivered.
    `alone`: it is one message, for the last time; it counts as delivered when the member says that
    it has begun. `record`: its count must be durable before the member gets it.
    """

    number: int
    member: int
    span: TickSpan
    left: TickSpans
    times: int
    since_s: float
    until_s: float
    alone: bool = False
    begun: bool = False
    record: bool = False

    @property
    def counted(self) -> int:
        """How often its messages count as delivered by now: a last one does when it has begun."""
        return self.times - (1 if self.alone and not self.begun else 0)


@dataclass(slots=True)
class Returned:
    """Messages to deliver again, from `due_s` on; `times`: how often they were delivered."""

    spans: TickSpans
    due_s: float
    times: int


@dataclass(frozen=True, slots=True)
class Portion:
    """What to read next: the ticks above `after`. `returned`: to deliver again; None: new ones."""

    after: TimeTick
    returned: Returned | None = None


@dataclass(slots=True)
class BookMember:
    """A member and its leases, by number. `ran_out`: see MemberView."""

    name: str
    leases: dict[int, Lease] = field(default_factory=dict)
    ran_out: int = 0
