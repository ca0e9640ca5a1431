"""Counts of deliveries against a plain dict."""

import random

import pytest

from broker.core.groups.tried_counts import TriedCounts
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick


@pytest.mark.parametrize("seed", range(50))
def test_each_tick_has_its_last_count(seed: int) -> None:
    rng = random.Random(seed)
    counts, naive = TriedCounts(), dict[int, int]()
    for _ in range(60):
        after = rng.randrange(40)
        span = TickSpan(TimeTick(after), TimeTick(after + rng.randrange(1, 6)))
        ticks = range(span.after + 1, span.upto + 1)
        if rng.random() < 0.1:
            counts.cap(2)
            naive = {tick: min(n, 2) for tick, n in naive.items()}
        elif rng.random() < 0.3:
            counts.remove(span)
            naive = {tick: n for tick, n in naive.items() if tick not in ticks}
        else:
            times = rng.randrange(1, 4)
            counts.put(span, times)
            naive |= dict.fromkeys(ticks, times)
        again = TriedCounts(counts)
        found = {
            tick: each.times
            for each in again
            for it in each.spans
            for tick in range(it.after + 1, it.upto + 1)
        }
        assert found == naive
        assert len(counts) == len(again) == sum(len(it.spans) for it in counts)
