"""What the model of an ordered group is made of."""

from dataclasses import dataclass

from broker.core.groups.group_changes import GroupCreated
from broker.core.groups.group_table import GroupTable
from broker.model.groups.consumer_group import DeliveryLimit, GroupKey, TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick

KEY = GroupKey("by-dev-rootcoord-dml_0_7v0", "g")
LEASE_S = 10.0


def span(after: int, upto: int) -> TickSpan:
    return TickSpan(TimeTick(after), TimeTick(upto))


def ordered_table(mode: GroupMode, limit: DeliveryLimit | None = None) -> GroupTable:
    table = GroupTable()
    created = GroupCreated("g", int(LEASE_S * 1000), TimeTick(0), limit, mode)
    table.apply(KEY.vchannel, created, TimeTick(1))
    return table


@dataclass
class Ack:
    """An acknowledgement that is being written, or that messages die."""

    member: int
    lease: int
    spans: tuple[TickSpan, ...]
    times: int
    ticks: set[int]
    dying: bool = False


def has(spans: tuple[TickSpan, ...], tick: int) -> bool:
    return any(it.after < tick <= it.upto for it in spans)


def keys_apart(one: frozenset[int], other: frozenset[int]) -> bool:
    return one.isdisjoint(other)
