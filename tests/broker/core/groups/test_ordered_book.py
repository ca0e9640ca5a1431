"""The book of an ordered group against a naive model: one place for each key, and its order."""

import random

import pytest

from broker.model.groups.group_mode import GroupMode
from tests.broker.core.groups.ordered_txn_model import OrderedTxnRun

ORDERED = [GroupMode.BY_KEY, GroupMode.BY_VCHANNEL]


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("mode", ORDERED)
@pytest.mark.parametrize("seed", range(100))
def test_whatever_happens_a_key_has_one_member_at_a_time_and_comes_in_order(
    seed: int, mode: GroupMode, limited: bool
) -> None:
    run = OrderedTxnRun(random.Random(seed), mode, limited)
    for _ in range(250):
        run.step()
    run.drain()
