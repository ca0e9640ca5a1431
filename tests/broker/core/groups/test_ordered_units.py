"""Units stay in the order of their ticks, whichever come and go."""

import random

from broker.core.groups.ordered_units import OrderedUnits, Unit
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick


def unit(tick: int) -> Unit:
    return Unit(TimeTick(tick), TickSpan(TimeTick(tick - 1), TimeTick(tick)), (1,))


def test_units_are_found_within_spans_and_stay_in_order() -> None:
    rng = random.Random(7)
    units, naive = OrderedUnits(), dict[int, Unit]()
    top = 0
    for _ in range(3000):
        sort = rng.random()
        if sort < 0.45:
            top += rng.randrange(1, 4)
            naive[top] = unit(top)
            units.add(naive[top])
        elif sort < 0.5 and (free := sorted(set(range(1, top)) - naive.keys())):
            tick = rng.choice(free)
            naive = dict(sorted((naive | {tick: unit(tick)}).items()))
            units.add(naive[tick])
        elif naive:
            units.remove(naive.pop(rng.choice(list(naive))))
        assert len(units) == len(naive)
        low = rng.randrange(top + 2)
        spans = [TickSpan(TimeTick(low + at), TimeTick(low + at + 3)) for at in (0, 5)]
        wanted = [it for it in naive if any(s.after < it <= s.upto for s in spans)]
        assert [it.tick for it in units.within(spans)] == wanted
        reaching = {it.tick for it in units.reaching(spans)}
        for span in spans:
            below = [it for it in naive if it <= span.after][-1:]
            above = [it for it in naive if it > span.upto][:1]
            assert reaching >= {*below, *above}
        assert reaching >= set(wanted)
        assert len(reaching) <= len(wanted) + 2 * len(spans)
    assert [it.tick for it in units] == list(naive)
