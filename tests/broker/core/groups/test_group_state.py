"""One group: what dies, and what a change of its limit does. The fold is in test_group_table."""

from broker.core.groups.group_changes import (
    GroupAltered,
    GroupCreated,
    MessagesDying,
    MessagesTried,
)
from broker.core.groups.group_table import GroupTable
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.ids import TimeTick
from tests.broker.core.groups.made_changes import LIMIT, V


def test_without_a_limit_what_was_dying_is_left_again() -> None:
    table, key = GroupTable(), GroupKey(V, "g")
    span = TickSpan(TimeTick(2), TimeTick(6))
    table.apply(V, GroupCreated("g", 1000, TimeTick(0), LIMIT), TimeTick(10))
    table.apply(V, MessagesTried("g", (span,), 2), TimeTick(11))
    table.apply(
        V, MessagesDying("g", (TickSpan(TimeTick(4), TimeTick(5)),), "bad", 2), TimeTick(12)
    )
    table.apply(
        V, MessagesDying("g", (TickSpan(TimeTick(4), TimeTick(5)),), "bad", 2), TimeTick(13)
    )
    state = table.groups[key]
    assert len(state.tried) == 2
    assert [(it.since, it.cause, it.times) for it in state.dying] == [(12, "bad", 2)]
    table.apply(V, GroupAltered("g", 5000, LIMIT), TimeTick(14))
    assert (len(state.tried), len(state.dying), state.lease_ms) == (2, 1, 5000)
    table.apply(V, GroupAltered("g", 5000, None), TimeTick(15))
    assert (len(state.tried), state.dying, state.limit) == (0, [], None)
