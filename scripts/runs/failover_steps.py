"""Reads the steps of a failover, with their times, out of the JSON logs of a cluster."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

LEVELS = "error,tidemark=info,broker.coordinator=debug,broker.node=debug"
"""The log level that the processes need for their steps to be in the log."""

STEPS: Mapping[str, str] = {
    "leads": "another coordinator leads",
    "node lost": "death noticed",
    "node chosen": "new owner chosen",
    "owner recorded": "owner recorded, durable",
    "opening": "node begins to open",
    "log opened": "log fenced and opened",
    "recovered": "snapshot and log read",
    "first tick written": "first record durable",
    "node has opened it": "coordinator hears of it",
    "owner confirmed": "owner confirmed, durable",
}
"""The first words of each step's log line, in order, and the name of the step."""


@dataclass(frozen=True, slots=True)
class Step:
    """How long after the kill the first and the last channel reached a step."""

    name: str
    first_s: float
    last_s: float

    def __str__(self) -> str:
        return f"    {self.name:26} {self.first_s:7.3f} s … {self.last_s:7.3f} s"


def steps_between(log: Path, begin_s: float, end_s: float) -> list[Step]:
    """The steps logged between two times, in seconds since 1970."""
    met: dict[str, list[float]] = {}
    for said, at_s in _lines(log):
        name = next((name for start, name in STEPS.items() if said.startswith(start)), None)
        if name is not None and begin_s <= at_s <= end_s:
            met.setdefault(name, []).append(at_s - begin_s)
    return [Step(name, min(met[name]), max(met[name])) for name in STEPS.values() if name in met]


def lines_of(steps: Sequence[Step]) -> str:
    """One line for each step, in one text."""
    return "\n".join(map(str, steps))


def _lines(log: Path) -> Iterator[tuple[str, float]]:
    """The event and time of each line; skips lines that are not JSON, or half written."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                fields = json.loads(line)
                yield str(fields["event"]), datetime.fromisoformat(fields["timestamp"]).timestamp()
            except (ValueError, KeyError, TypeError):
                continue
