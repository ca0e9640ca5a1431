"""Consumer groups as values: what they are called, and how far they are."""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member now. `waiting`: it has room for messages and gets the next ones.

    `leases`: batches it has and has not acknowledged; `oldest_s`: the age of the oldest of them.
    """

    name: str
    number: int
    waiting: bool
    leases: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as it is listed. `redelivered`: batches leased again since it runs here."""

    group: GroupSnapshot
    members: tuple[MemberView, ...] = ()
    redelivered: int = 0
