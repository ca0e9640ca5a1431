"""Decides when a program hears that its client is waiting, and what for.

Pure: the caller keeps the time. Waits for the same thing share one line, which is repeated ever
more rarely; one more line says when the client continues.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FIRST_S = 2.0
"""A wait that is over sooner is not reported: a channel that moves is soon served again."""
REPEAT_S_MAX = 60.0
REPEAT_FACTOR = 3.0
NAMES_MAX = 2


@dataclass(slots=True, eq=False)
class Wait:
    """One wait. `what` it is for groups it with others; `name` is the part that is its own."""

    what: str
    name: str
    since_s: float
    cause: str = ""


@dataclass(slots=True)
class _Told:
    since_s: float
    next_s: float
    repeat_s: float


class WaitReport:
    """The waits of one client that have not ended."""

    def __init__(self) -> None:
        self._waits: dict[Wait, None] = {}
        self._told: dict[str, _Told] = {}

    def begun(self, wait: Wait) -> None:
        """Count a wait that has begun."""
        self._waits[wait] = None

    def ended(self, wait: Wait, now_s: float, *, succeeded: bool) -> str:
        """Forget a wait; the line that says it is over, "" for none."""
        self._waits.pop(wait, None)
        if any(it.what == wait.what for it in self._waits):
            return ""
        told = self._told.pop(wait.what, None)
        if told is None or not succeeded:
            return ""
        return f"no longer waiting for {wait.what}, after {now_s - told.since_s:.0f} s"

    def due(self, now_s: float) -> list[str]:
        """The lines to report now."""
        lines = []
        for what in dict.fromkeys(it.what for it in self._waits):
            group = [it for it in self._waits if it.what == what]
            since_s = min(it.since_s for it in group)
            told = self._told.get(what) or _Told(since_s, since_s + FIRST_S, 0.0)
            if now_s < told.next_s:
                continue
            told.repeat_s = min(max(told.repeat_s, FIRST_S) * REPEAT_FACTOR, REPEAT_S_MAX)
            told.next_s = now_s + told.repeat_s
            self._told[what] = told
            lines.append(_line(what, group, now_s - since_s))
        return lines

    def next_s(self) -> float | None:
        """When `due` has to be called next; None while nothing is waited for."""
        times = []
        for wait in self._waits:
            told = self._told.get(wait.what)
            times.append(wait.since_s + FIRST_S if told is None else told.next_s)
        return min(times, default=None)


def _line(what: str, group: Sequence[Wait], waited_s: float) -> str:
    names = sorted({it.name for it in group if it.name})
    more = len(names) - NAMES_MAX
    named = ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
    cause = next((it.cause for it in group if it.cause), "no answer yet")
    about = f" ({named})" if named else ""
    return f"waiting {waited_s:.0f} s for {what}{about}: {cause}"
