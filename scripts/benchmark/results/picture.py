"""Draws the results as one picture: a panel for each question, a bar for each ratio.

Bars start at 1, the subject that the others of the panel are compared with: on a log axis a bar to
the right is as far for "twice" as one to the left for "half". Dots are the rounds.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from benchmark.results.figures import Series, find, ratios
from benchmark.results.questions import Question, asked

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

OURS, THEIRS, DISK, DOTS = "#2a6f97", "#adb5bd", "#d9b26f", "#343a40"
BAR_INCHES, PANEL_INCHES, HEAD_INCHES, FOOT_INCHES = 0.26, 0.85, 0.8, 0.1
COLUMNS_FROM = 6
"""More panels than that stand in two columns."""
TEXT, SMALL = 8, 7
LATER = {
    "after answer": " *", "every second": " **", "every 2 min": " **", "by the system": " **",
}  # fmt: skip
TICKS = (
    0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000,
)  # fmt: skip
CROWDED_FROM = 2_000
"""Where the largest value is that many times the smallest, only powers of ten are labelled."""


def draw(field_of: Sequence[Series], path: Path, about: str) -> bool:
    """Draw a panel for each question of which something was measured; False if nothing was.

    `about` stands below the title: what run this was, on which machine.
    """
    panels = list(asked(field_of))
    if not panels:
        return False
    columns = _columns(panels)
    heights = [sum([_height(found) for _, found in column]) for column in columns]
    figure = pyplot.figure(figsize=(8.5 * len(columns), max(heights) + HEAD_INCHES + FOOT_INCHES))
    for at, column in enumerate(columns):
        _column(figure, column, (at, len(columns)), max(heights))
    top = figure.get_figheight()
    figure.suptitle(
        "Tidemark beside other logs: medians of the rounds of one run, messages of 1 KiB",
        x=0.01, y=1 - 0.12 / top, ha="left", va="top", fontsize=13, weight="bold",
    )  # fmt: skip
    figure.text(0.01, 1 - 0.4 / top, about, va="top", fontsize=TEXT, color=DOTS)
    figure.legend(
        handles=_legend(), loc="upper left", bbox_to_anchor=(0.003, 1 - 0.56 / top), ncols=6,
        fontsize=TEXT, frameon=False,
    )  # fmt: skip
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


Panel = tuple[Question, list[Series]]


def _columns(panels: Sequence[Panel]) -> list[Sequence[Panel]]:
    """One column, or two of about the same height."""
    if len(panels) < COLUMNS_FROM:
        return [panels]
    splits = [[panels[:at], panels[at:]] for at in range(1, len(panels))]
    return min(splits, key=lambda both: max([sum([_height(it[1]) for it in one]) for one in both]))


def _height(found: Sequence[Series]) -> float:
    return PANEL_INCHES + BAR_INCHES * len(found)


def _column(figure: Any, panels: Sequence[Panel], place: tuple[int, int], height: float) -> None:
    at, count = place
    whole = height + HEAD_INCHES + FOOT_INCHES
    top = height + FOOT_INCHES
    for question, found in panels:
        inner = BAR_INCHES * len(found)
        bottom = top - PANEL_INCHES * 0.55 - inner
        left = (at + 0.36) / count
        axes = figure.add_axes((left, bottom / whole, 0.53 / count, inner / whole))
        _panel(axes, question, found)
        top -= PANEL_INCHES + inner


def _panel(axes: Any, question: Question, found: Sequence[Series]) -> None:
    reference = find(found, question.reference)
    if reference is not None and not reference.median(question.key):
        reference = None  # nothing is a multiple of zero
    shown = list(reversed(found))
    for at, it in enumerate(shown):
        values = ratios(it, reference, question.key) if reference else it.values(question.key)
        middle = it.median(question.key)
        if values:
            ratio = statistics.median(values)
            _bar(axes, at, ratio, _colour(it.name), start=1 if reference else 0)
            axes.plot(values, [at] * len(values), "o", color=DOTS, ms=2.6, alpha=0.7, zorder=3)
        text = f"{_number(ratio)}x  " if reference and values and it is not reference else ""
        axes.annotate(
            f"{text}({_number(middle)})", (1.01, at), xycoords=("axes fraction", "data"),
            va="center", fontsize=SMALL, color=DOTS, annotation_clip=False,
        )  # fmt: skip
    labels = [it.name + LATER.get(it.sync, "") for it in shown]
    axes.set_yticks(range(len(shown)), labels, fontsize=SMALL)
    better = "further left is better" if question.lower_is_better else "further right is better"
    axis = f"times {reference.name}; in brackets: {question.unit}" if reference else question.unit
    axes.set_title(question.title, fontsize=TEXT + 1, loc="left", weight="bold", x=-0.66)
    axes.set_xlabel(f"{axis} ({better})", fontsize=SMALL)
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    if reference:
        _log_axis(axes, question, found, reference)
    else:
        axes.locator_params(axis="x", nbins=6)
        axes.xaxis.set_major_formatter("{x:,.10g}")


def _bar(axes: Any, at: int, length: float, colour: str, *, start: float) -> None:
    axes.barh(at, length - start, left=start, color=colour, height=0.62, zorder=2)


def _log_axis(axes: Any, question: Question, found: Sequence[Series], reference: Series) -> None:
    values = [value for it in found for value in ratios(it, reference, question.key) if value > 0]
    low, high = min([0.5, *values]), max([2.0, *values])
    axes.set_xscale("log")
    axes.set_xlim(low / 1.25, high * 1.25)
    crowded = high / low > CROWDED_FROM
    ticks = [
        it
        for it in TICKS
        if low / 1.25 <= it <= high * 1.25 and (not crowded or math.log10(it).is_integer())
    ]
    axes.set_xticks(ticks, [f"{it:g}x" for it in ticks])
    axes.xaxis.set_minor_formatter("")
    axes.grid(axis="x", color="#e9ecef", zorder=0)
    axes.axvline(1, color=DOTS, lw=0.8, zorder=4)


def _legend() -> list[Any]:
    dot = Line2D([], [], marker="o", ls="", color=DOTS, ms=3, label="one round")
    return [
        Patch(color=OURS, label="Tidemark"),
        Patch(color=THEIRS, label="other servers"),
        Patch(color=DISK, label="a bare loop of write and sync"),
        dot,
        Line2D([], [], ls="", label="* synced a moment after the answer"),
        Line2D(
            [],
            [],
            ls="",
            label="** synced each second (Redis), in two minutes (NATS), or never asked for "
            "(Kafka, RabbitMQ)",
        ),
    ]


def _number(value: float | None) -> str:
    """Short, because it stands beside a bar: two or three digits."""
    if value is None:
        return "-"
    for above, unit in ((1e6, "M"), (1e4, "k")):
        if value >= above:
            return f"{value / (1e6 if unit == 'M' else 1e3):.3g}{unit}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _colour(name: str) -> str:
    if name.startswith("Tidemark"):
        return OURS
    return DISK if name.startswith("bare") else THEIRS
