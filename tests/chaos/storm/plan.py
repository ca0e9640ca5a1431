"""Which fault strikes when: a pure function of the seed.

What a fault strikes is a number, which the one who carries it out takes modulo what is there then.
"""

import random
from collections.abc import Collection, Mapping
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
    "kill-owner": (0.0, 0.0),
    "zombie": (2.5, 4.5),
    "lose-answers": (0.2, 2.0),
    "trickle": (0.5, 3.0),
}
"""Each kind, and how long it lasts."""

TIMES = {"kill-actor": 3, "kill-owner": 2, "zombie": 2, "lose-answers": 3, "trickle": 3}
"""How often a kind is in the deck that is dealt again and again; once if not told."""
CLUSTERED = 0.35
"""So many strike right after the one before, and the same one, if they can."""
SOON_S = 0.3


@dataclass(frozen=True, slots=True)
class Deck:
    """The kinds of faults of one place, and how long it is quiet between two, in the mean."""

    lasting_s: Mapping[str, tuple[float, float]]
    times: Mapping[str, int]
    mean_gap_s: float = 3.0
    gap_s_max: float = 8.0


ON_ONE_MACHINE = Deck(LASTING_S, TIMES)
ON_HOSTS = Deck(
    {
        "kill-kafka": (0.0, 0.0),
        "kill-most-of-kafka": (0.0, 0.0),
        "kill-etcd": (0.0, 0.0),
        "kill-most-of-etcd": (0.0, 0.0),
        "kill-coordinator": (0.0, 0.0),
        "kill-node": (0.0, 0.0),
        "kill-owner": (0.0, 0.0),
        "kill-actor": (0.0, 0.0),
        "stop": (0.2, 6.0),
        "zombie": (2.5, 4.5),
        "last-word": (2.5, 4.5),
        "partition": (0.5, 6.0),
        "isolate": (0.5, 6.0),
        "one-way": (0.5, 6.0),
        "delay": (0.5, 6.0),
        "loss": (0.5, 6.0),
        "clock-step": (0.0, 0.0),
    },
    {"zombie": 2, "partition": 3, "isolate": 2, "one-way": 3, "kill-owner": 2, "kill-node": 2},
    # A Kafka that was killed takes seconds to start, of both cores.
    mean_gap_s=5.0,
    gap_s_max=15.0,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """`choices`: numbers that decide whom it strikes, and how or how hard."""

    at_s: float
    kind: str
    lasts_s: float
    choices: tuple[int, int]


def make_plan(
    seed: int, duration_s: float, kinds: Collection[str] = (), deck: Deck = ON_ONE_MACHINE
) -> tuple[Fault, ...]:
    """Faults of the given kinds, or of all; one begins while others last. ValueError: no such."""
    lasting_s = deck.lasting_s
    unknown = set(kinds) - set(lasting_s)
    if unknown:
        raise ValueError(f"no such faults: {sorted(unknown)}; there are {sorted(lasting_s)}")
    chosen = random.Random(seed)
    cards = [name for name in sorted(kinds or lasting_s) for _ in range(deck.times.get(name, 1))]
    plan, at_s, left = list[Fault](), 0.0, list[str]()
    victim = chosen.getrandbits(32)
    while True:
        if chosen.random() < CLUSTERED:
            at_s += chosen.uniform(0.0, SOON_S)
        else:
            at_s += min(chosen.expovariate(1 / deck.mean_gap_s), deck.gap_s_max)
            victim = chosen.getrandbits(32)
        if at_s >= duration_s:
            return tuple(plan)
        left = left or chosen.sample(cards, len(cards))
        kind = left.pop()
        lasts_s = chosen.uniform(*lasting_s[kind])
        lasts_s = min(lasts_s, duration_s - at_s)
        plan.append(Fault(at_s, kind, lasts_s, (victim, chosen.getrandbits(32))))
