"""Which fault strikes when: a pure function of the seed.

What a fault strikes is a number, which the one who carries it out takes modulo what is there then.
Next: tests/chaos/storm/faults.py
"""

import random
from collections.abc import Collection
from dataclasses import dataclass

LASTING_S = {
    "kill-actor": (0.0, 0.0),
    "kill-node": (0.0, 0.0),
    "kill-coordinator": (0.0, 0.0),
    "stop-node": (0.2, 6.0),
    "stop-coordinator": (0.2, 6.0),
    "cut": (0.0, 3.0),
    "silence": (0.2, 5.0),
    "delay": (0.5, 5.0),
    "quota": (0.5, 4.0),
    "slow-disk": (0.5, 4.0),
}
"""Each kind, and how long it lasts."""

TIMES = {"kill-actor": 3}
"""How often a kind is in the deck that is dealt again and again; once if not told."""
MEAN_GAP_S = 2.0
GAP_S_MAX = 6.0


@dataclass(frozen=True, slots=True)
class Fault:
    """`choices`: numbers that decide whom it strikes and how hard."""

    at_s: float
    kind: str
    lasts_s: float
    choices: tuple[int, int]


def make_plan(seed: int, duration_s: float, kinds: Collection[str] = ()) -> tuple[Fault, ...]:
    """Faults of the given kinds, or of all; one begins while others last. ValueError: no such."""
    unknown = set(kinds) - set(LASTING_S)
    if unknown:
        raise ValueError(f"no such faults: {sorted(unknown)}; there are {sorted(LASTING_S)}")
    chosen = random.Random(seed)
    deck = [name for name in sorted(kinds or LASTING_S) for _ in range(TIMES.get(name, 1))]
    plan, at_s, left = list[Fault](), 0.0, list[str]()
    while True:
        at_s += min(chosen.expovariate(1 / MEAN_GAP_S), GAP_S_MAX)
        if at_s >= duration_s:
            return tuple(plan)
        left = left or chosen.sample(deck, len(deck))
        kind = left.pop()
        lasts_s = chosen.uniform(*LASTING_S[kind])
        choices = (chosen.getrandbits(32), chosen.getrandbits(32))
        plan.append(Fault(at_s, kind, min(lasts_s, duration_s - at_s), choices))
