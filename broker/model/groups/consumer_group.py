"""Consumer groups as values: what they are called, and how far they are."""

from dataclasses import dataclass, replace

from broker.model.groups.group_mode import GroupMode
from broker.model.groups.unsettled import FirstUnsettled, HeldByTxn
from broker.model.ids import TimeTick
from broker.value import value


@value
class TickSpan:
    """The ticks above `after`, up to and with `upto`."""

    after: TimeTick
    upto: TimeTick


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A group on one vchannel."""

    vchannel: str
    name: str


def listed_by(key: GroupKey) -> tuple[str, str]:
    """The order of lists: by name, then by vchannel."""
    return key.name, key.vchannel


@dataclass(frozen=True, slots=True)
class DeliveryLimit:
    """After `deliveries_max` deliveries a message goes to the dead letters on `vchannel`.

    `vchannel` lies on the pchannel of the group. `origin`: the target the group belongs to, as its
    dead letters name it.
    """

    deliveries_max: int
    vchannel: str
    origin: str


@dataclass(frozen=True, slots=True)
class TriedSpans:
    """Messages that were delivered `times` times at least, and are not acknowledged."""

    times: int
    spans: tuple[TickSpan, ...]


@dataclass(frozen=True, slots=True)
class DyingSpans:
    """Messages on their way to the dead letters: delivered to no member any more.

    `since`: the tick at which that was decided; their copies lie above it.
    """

    spans: tuple[TickSpan, ...]
    cause: str
    times: int
    since: TimeTick


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group and what is acknowledged: everything up to `floor`, and `acked` above it.

    `tick`: that of the newest change it includes.
    """

    key: GroupKey
    lease_ms: int
    floor: TimeTick
    acked: tuple[TickSpan, ...]
    created_tick: TimeTick
    tick: TimeTick
    limit: DeliveryLimit | None = None
    tried: tuple[TriedSpans, ...] = ()
    dying: tuple[DyingSpans, ...] = ()
    mode: GroupMode = GroupMode.SHARED


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member now. `waiting`: it has room for messages and gets the next ones.

    `leases`: batches it has and has not acknowledged; `oldest_s`: the age of the oldest of them.
    `owns`: of an ordered group, how many slots of the vchannel, of 1 or 256.
    `ran_out`: how many of its leases have ended by themselves since it last settled anything.
    """

    name: str
    number: int
    waiting: bool
    leases: int
    oldest_s: float
    owns: int = 0
    ran_out: int = 0

    def owning(self, slots: int) -> "MemberView":
        """The same member with so many slots."""
        return replace(self, owns=slots)


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who is there on a vchannel, and who is to own it: "" for nobody.

    Members by identity, in the order in which they joined. `changes` grows with each change.
    """

    members: tuple[str, ...]
    owner: str
    changes: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """What of a vchannel lies above a group's floor; what is acknowledged there is counted, too.

    `ms`: the age of the floor, measured by the newest closed tick; 0 when nothing is left.
    """

    messages: int
    bytes: int
    ms: int


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as it is listed.

    `redelivered` batches leased again, `dead` copies in the dead letters, and `expired` messages
    passed over: since its pchannel is open here. `trouble`: why its dead letters cannot be written;
    "" when they can. `seen`: about when somebody was there last, 0 while somebody is. `lag`: as
    counted some seconds ago, None before the first count. `first`: of an ordered group that runs,
    what it has to settle first; None when nothing is unsettled. `held`: by open transactions.
    """

    group: GroupSnapshot
    members: tuple[MemberView, ...] = ()
    redelivered: int = 0
    trouble: str = ""
    dead: int = 0
    expired: int = 0
    seen: TimeTick = TimeTick(0)
    lag: GroupLag | None = None
    first: FirstUnsettled | None = None
    held: tuple[HeldByTxn, ...] = ()
