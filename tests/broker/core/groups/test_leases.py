"""How often messages count as delivered when their lease ends by itself."""

import pytest

from broker.core.groups.leases import Lease
from broker.core.groups.tick_spans import TickSpans
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick


@pytest.mark.parametrize(
    ("alone", "begun", "counted"),
    [(False, False, 3), (False, True, 3), (True, True, 3), (True, False, 2)],
)
def test_a_last_delivery_counts_only_once_the_member_has_begun(
    *, alone: bool, begun: bool, counted: int
) -> None:
    span = TickSpan(TimeTick(1), TimeTick(2))
    lease = Lease(1, 1, span, TickSpans([span]), 3, 0.0, 10.0, alone=alone, begun=begun)
    assert lease.counted == counted
