"""The arithmetic of a benchmark: percentiles, medians over rounds, ratios within one round.

Single figures on two shared cores are noisy, so two subjects are compared in each round, and the
median of these ratios is reported.
"""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

RATE = "rate"
"""Messages or rows a second."""
P50, P99 = "p50_ms", "p99_ms"
CPU = "cpu_us"
"""CPU time of the server for each message, in microseconds."""
IDLE, TICK = "cpu_percent", "tick_us"
"""CPU of an idle server in percent of a core; and that for each tick of an idle reader, in µs."""
RESIDENT = "resident_mb"
WAKES = "wakes"
"""How often a second the threads of an idle server begin to wait."""
START = "start_s"
"""From the start of a process to its first answer."""
BACK = "back_s"
"""From a drop until 85 % of its bytes are back on the disk, in seconds."""
CHECK = "check_us"
"""CPU of one permission check, in µs."""
QUANTILES = {P50: 0.5, P99: 0.99, "p999_ms": 0.999}
MESSAGES = "messages"
_CPU_S, _PEAK = "server_cpu_s", "server_peak_bytes"


class BadResults(Exception):
    """A file is not a benchmark's results; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one run. `cpu_s` and `peak_bytes` are those of the server during the run."""

    values: Mapping[str, float]
    cpu_s: float | None = None
    peak_bytes: int | None = None

    def get(self, key: str) -> float | None:
        """One figure; None where this run does not have it."""
        if key != CPU:
            return self.values.get(key)
        messages = self.values.get(MESSAGES)
        return None if self.cpu_s is None or not messages else self.cpu_s / messages * 1e6


@dataclass(slots=True)
class Series:
    """The rounds of one subject. `sync`: when its messages are on disk. `unit`: of its rate."""

    name: str
    kind: str
    sync: str = ""
    unit: str = "msg/s"
    rounds: list[Round] = field(default_factory=list)

    def values(self, key: str) -> list[float]:
        """One figure, of each round that has it."""
        return [value for it in self.rounds if (value := it.get(key)) is not None]

    def median(self, key: str) -> float | None:
        """The median of one figure; None when no round has it."""
        found = self.values(key)
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


def ratios(mine: Series, other: Series | None, key: str = RATE) -> list[float]:
    """One subject's figure divided by another's, in each round that has both."""
    if other is None:
        return []
    pairs = zip(mine.rounds, other.rounds, strict=False)
    found = [(one.get(key), two.get(key)) for one, two in pairs]
    return [one / two for one, two in found if one is not None and two]


def ratio(mine: Series, other: Series | None, key: str = RATE) -> float | None:
    """The median of the rounds' ratios; None without anything to compare."""
    found = ratios(mine, other, key)
    return statistics.median(found) if found else None


def spread(values: Sequence[float]) -> float | None:
    """Half the range of the values, as a share of their median; None for fewer than two values."""
    middle = statistics.median(values) if len(values) > 1 else 0.0
    return (max(values) - min(values)) / 2 / middle if middle else None


def find(field_of: Iterable[Series], name: str) -> Series | None:
    """The series of that name."""
    return next((it for it in field_of if it.name == name), None)


def as_json(field_of: Sequence[Series], about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was measured, for the JSON file."""
    return {**about, "subjects": [_subject(it) for it in field_of]}


def written(made: Mapping[str, Any]) -> str:
    """The text of the JSON file: a line a subject, numbers of six digits."""
    lines = [f'"{key}": {json.dumps(it)}' for key, it in made.items() if key != "subjects"]
    subjects = [json.dumps(_rounded(it)) for it in made["subjects"]]
    listed = ",\n".join(subjects)
    return "{\n" + ",\n".join([*lines, f'"subjects": [\n{listed}\n]']) + "\n}\n"


def _rounded(it: Any) -> Any:
    match it:
        case dict():
            return {key: _rounded(value) for key, value in it.items()}
        case list():
            return [_rounded(value) for value in it]
        case float():
            return float(f"{it:.6g}")
        case _:
            return it


def from_json(made: Any) -> list[Series]:
    """The series in the content of a JSON file, of this version or an older one.

    Raises BadResults when it has another shape.
    """
    try:
        return [
            Series(
                it["name"],
                it["kind"],
                it.get("sync") or "",
                it.get("unit") or "msg/s",
                [_round(each) for each in it["rounds"]],
            )
            for it in made["subjects"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise BadResults(
            f"no results of a benchmark in it ({type(error).__name__}: {error}); "
            "name the bench.json that a run wrote"
        ) from error


def _round(told: Mapping[str, Any]) -> Round:
    values = {
        key: float(value)
        for key, value in told.items()
        if key not in (_CPU_S, _PEAK) and value is not None
    }
    return Round(values, told.get(_CPU_S), told.get(_PEAK))


def _subject(it: Series) -> dict[str, Any]:
    keys = sorted({key for each in it.rounds for key in each.values})
    return {
        "name": it.name,
        "kind": it.kind,
        "sync": it.sync,
        "unit": it.unit,
        "medians": {key: it.median(key) for key in keys},
        "cpu_us_per_message": it.median(CPU),
        "peak_bytes": it.peak_bytes(),
        "rounds": [
            {**each.values, _CPU_S: each.cpu_s, _PEAK: each.peak_bytes} for each in it.rounds
        ],
    }
