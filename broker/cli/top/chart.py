"""Draws rates of the last minutes as bars, where a page leaves room."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from broker.cli.show.figures import COUNT_WIDTH, count_text, span_text

LINES_MIN, LINES_MAX = 6, 20
"""With title and axis."""
GAP = 3
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LABEL = COUNT_WIDTH + 3


@dataclass(frozen=True, slots=True)
class Chart:
    """`values`: oldest first, one for each `step_s` seconds; None where nothing was measured."""

    title: str
    values: Sequence[float | None]
    step_s: float


def draw_charts(charts: Sequence[Chart], width: int, height: int) -> list[str]:
    """The charts beside each other, as many as have room for all their values; at least one.

    Nothing if the height is too small for bars, or before anything was measured.
    """
    if height < LINES_MIN or all(value is None for it in charts for value in it.values):
        return []
    height = min(height, LINES_MAX)
    whole = _LABEL + max(len(it.values) for it in charts)
    count = max(1, min(len(charts), (width + GAP) // (whole + GAP)))
    room = (width - GAP * (count - 1)) // count
    drawn = [draw_chart(it, room, height) for it in charts[:count]]
    return [(" " * GAP).join(lines).rstrip() for lines in zip(*drawn, strict=True)]


def draw_chart(chart: Chart, width: int, height: int) -> list[str]:
    """Title, bars with the highest value beside them, time axis: `height` lines of `width`."""
    bars = height - 2
    values = list(chart.values)[-(width - _LABEL) :]
    # Each value as wide as there is room for, so that a wide screen is used.
    each = max(1, (width - _LABEL) // max(1, len(values)))
    highest = max((it for it in values if it), default=0.0)
    lines = [f"  {chart.title}"]
    for row in range(bars, 0, -1):
        label = count_text(highest) if row == bars and highest else ("0" if row == 1 else "")
        line = "".join(_block(it, highest, row, bars) * each for it in values)
        lines.append(f"{label:>{_LABEL - 1}} {line}")
    ago = f"{span_text(len(values) * chart.step_s)} ago"
    lines.append(" " * _LABEL + ago + "now".rjust(each * len(values) - len(ago)))
    return [line.ljust(width) for line in lines]


def _block(value: float | None, highest: float, row: int, rows: int) -> str:
    """The part of a bar that lies in a row; a value of 0 is seen as the thinnest one."""
    if value is None:
        return " "
    eighths = math.ceil(8 * rows * value / highest) if highest else 0
    part = min(8, max(0, eighths - 8 * (row - 1)))
    return _EIGHTHS[max(part, 1) if row == 1 else part]
