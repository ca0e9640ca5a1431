"""Tells what changed between two runs beyond the spread of both.

Two runs meet a machine at different speeds. So a figure of ours is compared twice: as measured, and
as a multiple of the same figure of Redis in the same round, where both runs have that. It is better
or worse when in both ways the ranges of the rounds do not overlap: a slower machine shows only in
the first, a change of Redis only in the second. Figures of other servers are never a failure.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from benchmark import names
from benchmark.results.figures import (
    CHECK,
    CPU,
    IDLE,
    P50,
    P99,
    RATE,
    RESIDENT,
    START,
    TICK,
    WAKES,
    Series,
    find,
    ratios,
    spread,
)

MARGIN = 0.05
LOST_NAMED = 5
MEASURED_ALIKE = (
    ("messages of a round", "messages"),
    ("seconds at a rate", "seconds_at_a_rate"),
    ("CPUs", "machine", "cpus"),
    ("Python", "machine", "python"),
)
BESIDE = "÷Redis: new/old of both as multiples of Redis in the same round; ±: half the range"
ROUNDS_MIN = 2
BETTER, WORSE, SAME, TOO_FEW = "better", "worse", "same", "?"
FIGURES = {
    RATE: "rate/s", P50: "p50 ms", P99: "p99 ms", CPU: "CPU µs", IDLE: "CPU %",
    TICK: "tick µs", RESIDENT: "MB", WAKES: "wakes/s", START: "start s",
    CHECK: "check µs",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one subject in both runs. `beside`: both as multiples of a baseline's."""

    name: str
    key: str
    old: Sequence[float]
    new: Sequence[float]
    beside: tuple[Sequence[float], Sequence[float]] | None = None

    @property
    def ours(self) -> bool:
        """Whether it is a figure of Tidemark, not of a baseline."""
        return self.name.startswith("Tidemark")

    @property
    def factor(self) -> float:
        """New divided by old, as measured."""
        return _factor(self.old, self.new)

    @property
    def factor_beside(self) -> float | None:
        """New divided by old, both as multiples of a baseline's figure."""
        return _factor(*self.beside) if self.beside else None

    @property
    def verdict(self) -> str:
        """Better or worse where the ranges of the rounds do not overlap, else the same."""
        if any(len(old) < ROUNDS_MIN or len(new) < ROUNDS_MIN for old, new in self._pairs()):
            return TOO_FEW
        if all(self._worse(old, new) for old, new in self._pairs()):
            return WORSE
        if all(self._worse(new, old) for old, new in self._pairs()):
            return BETTER
        return SAME

    @property
    def fails(self) -> bool:
        """Whether a figure of ours is worse by more than 5 % beyond both runs' ranges."""
        if not self.ours or self.verdict != WORSE:
            return False
        return all(self._worse(old, new, MARGIN) for old, new in self._pairs())

    def _pairs(self) -> list[tuple[Sequence[float], Sequence[float]]]:
        return [(self.old, self.new), *([self.beside] if self.beside else [])]

    def _worse(self, old: Sequence[float], new: Sequence[float], margin: float = 0.0) -> bool:
        """Whether all of `new` is worse than all of `old`, by more than the margin."""
        if self.key == RATE:
            return max(new) < min(old) * (1 - margin)
        return min(new) > max(old) * (1 + margin)


def changes(old: Sequence[Series], new: Sequence[Series]) -> Iterator[Change]:
    """Each figure that both runs have."""
    for mine in new:
        before = find(old, mine.name)
        if before is None:
            continue
        for key in FIGURES:
            values = before.values(key), mine.values(key)
            if all(values):
                beside = _beside(before, old, key), _beside(mine, new, key)
                yield Change(mine.name, key, *values, beside if all(beside) else None)


def lost(old: Sequence[Series], new: Sequence[Series]) -> list[str]:
    """Subjects of the old run that the new one has not."""
    have = {it.name for it in new if it.rounds}
    return [it.name for it in old if it.rounds and it.name not in have]


def table(found: Sequence[Change]) -> Table:
    """What is not the same, ours first, at most 100 columns wide.

    A subject's name stands at its first figure.
    """
    made = Table(
        title=Text.assemble(("Changes since the old run", "bold"), "\n", BESIDE),
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    made.add_column("", overflow="fold")
    made.add_column("", no_wrap=True)
    for heading in ("new/old", "÷Redis", "old", "±", "new", "±"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("", no_wrap=True)
    last = ""
    for it in sorted([it for it in found if it.verdict != SAME], key=lambda it: not it.ours):
        beside = it.factor_beside
        made.add_row(
            it.name if it.name != last else "",
            FIGURES[it.key],
            f"{it.factor:.2f}",
            "" if beside is None else f"{beside:.2f}",
            _number(statistics.median(it.old)),
            _percent(spread(it.old)),
            _number(statistics.median(it.new)),
            _percent(spread(it.new)),
            it.verdict.upper() if it.fails else it.verdict,
        )
        last = it.name
    return made


def summary(found: Sequence[Change], lost_names: Sequence[str]) -> Iterator[str]:
    """How many figures of ours changed; why some were not judged; what is missing."""
    ours = [it for it in found if it.ours]
    if not ours:
        yield "nothing to compare: the two runs have no figure of Tidemark in common"
        return
    counted = {it: [each.verdict for each in ours].count(it) for it in (BETTER, WORSE, SAME)}
    failed = sum([it.fails for it in ours])
    told = ", ".join([f"{count} {word}" for word, count in counted.items()])
    margin = f"{MARGIN * 100:.0f} %"
    yield f"{told}; {failed} worse by more than {margin} beyond the spread of both runs"
    others = [it.verdict for it in found if not it.ours]
    if changed := len(others) - others.count(SAME) - others.count(TOO_FEW):
        yield f"{changed} figures of other servers changed, which is never a failure"
    if any(it.verdict == TOO_FEW for it in ours):
        yield f"?: judged only when both runs have {ROUNDS_MIN} rounds of it; take --rounds 5"
    if lost_names:
        named, more = lost_names[:LOST_NAMED], len(lost_names) - LOST_NAMED
        told = f", and {more} more" if more > 0 else ""
        yield f"only in the old run: {'; '.join(named)}{told}"


def unlike(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """In what the two runs differ, so that their figures do, too."""
    for told, *path in MEASURED_ALIKE:
        values = [_at(about, path) for about in (old, new)]
        if None not in values and values[0] != values[1]:
            old_value, new_value = values
            yield f"not measured alike: {told} {old_value} in the old run, {new_value} in the new"


def _at(about: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = about
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def yardstick(it: Series) -> str:
    """The subject whose figures show the speed of the machine for figures of this one."""
    if it.kind.startswith("latency"):
        return names.REDIS_ONE
    return names.REDIS_READ if it.kind == "read" else names.REDIS_APPEND


def _beside(it: Series, field_of: Sequence[Series], key: str) -> list[float]:
    """Multiples of a baseline's figure; nothing for a baseline, or without one to compare with."""
    if not it.name.startswith("Tidemark") or key not in (RATE, CPU, P50, P99):
        return []
    return ratios(it, find(field_of, yardstick(it)), key)


def _factor(old: Sequence[float], new: Sequence[float]) -> float:
    before = statistics.median(old)
    return statistics.median(new) / before if before else float("nan")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _number(value: float) -> str:
    """Four digits at most, with k and M."""
    for above, unit in ((1e6, "M"), (1e4, "k")):
        if value >= above:
            size = value / (1e6 if unit == "M" else 1e3)
            return f"{size:.0f}{unit}" if size >= 100 else f"{size:.1f}{unit}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
