"""The arithmetic of a benchmark: percentiles, medians over rounds, ratios within one round.

Single figures on two shared cores are noisy, so two subjects are compared in each round, and the
median of these ratios is reported.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

RATE = "rate"
"""Messages or rows a second."""
QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
ABOVE = {"p50_ms": "p50_above_ms", "p99_ms": "p99_above_ms"}


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one run. `cpu_s` and `peak_bytes` are those of the server during the run."""

    values: Mapping[str, float]
    cpu_s: float | None = None
    peak_bytes: int | None = None


@dataclass(slots=True)
class Series:
    """The rounds of one subject. `sync`: when its messages are on disk. `unit`: of its rate."""

    name: str
    kind: str
    sync: str
    unit: str = "msg/s"
    reference: str = ""
    """The subject it stands beside, whose values are taken off those of its latencies."""
    rounds: list[Round] = field(default_factory=list)

    def values(self, key: str) -> list[float]:
        """One figure, of each round that has it."""
        return [it.values[key] for it in self.rounds if key in it.values]

    def median(self, key: str) -> float | None:
        """The median of one figure; None when no round has it."""
        found = self.values(key)
        return statistics.median(found) if found else None

    def cpu_us(self) -> float | None:
        """CPU time of the server per message, in microseconds; the median of the rounds."""
        found = [
            it.cpu_s / it.values["messages"] * 1e6
            for it in self.rounds
            if it.cpu_s is not None and it.values.get("messages")
        ]
        return statistics.median(found) if found else None

    def peak_bytes(self) -> int | None:
        """The peak memory of the server over all rounds."""
        return max([it.peak_bytes for it in self.rounds if it.peak_bytes], default=None)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value with at least `share` of all at or below it (nearest rank).

    Raises ValueError without values.
    """
    if not values or not 0 < share <= 1:
        raise ValueError(f"no percentile {share} of {len(values)} values")
    return sorted(values)[math.ceil(share * len(values)) - 1]


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """The percentiles of durations, in milliseconds."""
    return {name: percentile(seconds, share) * 1000 for name, share in QUANTILES.items()}


def ratio(mine: Series, other: Series | None, key: str = RATE) -> float | None:
    """The median of the rounds' ratios; None without anything to compare."""
    pairs = _pairs(mine, other, key)
    return statistics.median([one / two for one, two in pairs if two]) if pairs else None


def above(mine: Series, other: Series | None, key: str) -> float | None:
    """The median over the rounds of the difference to the other series."""
    pairs = _pairs(mine, other, key)
    return statistics.median([one - two for one, two in pairs]) if pairs else None


def _pairs(mine: Series, other: Series | None, key: str) -> list[tuple[float, float]]:
    if other is None:
        return []
    return list(zip(mine.values(key), other.values(key), strict=False))


def find(field_of: Iterable[Series], name: str) -> Series | None:
    """The series of that name."""
    return next((it for it in field_of if it.name == name), None)


def as_json(field_of: Sequence[Series], about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was measured, for the JSON file."""
    return {**about, "subjects": [_subject(it, find(field_of, it.reference)) for it in field_of]}


def _subject(it: Series, reference: Series | None) -> dict[str, Any]:
    keys = sorted({key for each in it.rounds for key in each.values})
    medians = {key: it.median(key) for key in keys}
    medians |= {
        name: above(it, reference, key) for key, name in ABOVE.items() if reference and key in keys
    }
    return {
        "name": it.name,
        "kind": it.kind,
        "sync": it.sync,
        "unit": it.unit,
        "reference": it.reference or None,
        "medians": medians,
        "cpu_us_per_message": it.cpu_us(),
        "peak_bytes": it.peak_bytes(),
        "rounds": [
            {**each.values, "server_cpu_s": each.cpu_s, "server_peak_bytes": each.peak_bytes}
            for each in it.rounds
        ],
    }
