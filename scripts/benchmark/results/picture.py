"""Draws the results as one picture: a bar for each median, a dot for each round."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from benchmark.results.figures import RATE, Series

matplotlib.use("Agg")
from matplotlib import pyplot

OURS, THEIRS, DISK, DOTS = "#2a6f97", "#adb5bd", "#d9b26f", "#343a40"
KINDS = {
    "append": "durable messages a second, 1 KiB",
    "read": "messages read a second, 1 KiB",
    "rows": "durable Arrow rows a second",
    "channels": "messages a second, many vchannels and few",
    "latency": "ms: p50 (bar), p99 (mark), at the rate named",
}
BAR_INCHES = 0.28


def draw(field_of: Sequence[Series], path: Path) -> None:
    """Draw one panel for each kind, one below the other, as tall as its bars need."""
    panels = [
        (title, subjects)
        for kind, title in KINDS.items()
        if (subjects := [it for it in field_of if it.kind == kind and it.rounds])
    ]
    if not panels:
        return
    heights = [len(subjects) + 2.2 for _, subjects in panels]
    figure, axes = pyplot.subplots(
        len(panels),
        figsize=(11, BAR_INCHES * sum(heights)),
        height_ratios=heights,
        layout="constrained",
        squeeze=False,
    )
    for (title, subjects), place in zip(panels, axes[:, 0], strict=True):
        _panel(place, title, subjects)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panel(axes: Any, title: str, subjects: Sequence[Series]) -> None:
    latency = subjects[0].kind == "latency"
    for at, it in enumerate(reversed(subjects)):
        key = "p50_ms" if latency else RATE
        length = it.median(key) or 0.0
        axes.barh(at, length, color=_colour(it.name), height=0.62)
        if latency:
            far = it.median("p99_ms") or 0.0
            axes.plot([far], [at], "|", color=DOTS, ms=9, mew=2)
            text = f" {length:,.2f} / {far:,.2f}"
            axes.annotate(text, (max(length, far), at), va="center", fontsize=7)
        else:
            axes.plot(it.values(RATE), [at] * len(it.rounds), "o", color=DOTS, ms=2.5)
            most = max(it.values(RATE))
            axes.annotate(f"  {length:,.0f}", (most, at), va="center", fontsize=7)
    labels = [f"{it.name} [{it.sync}]" if it.sync else it.name for it in reversed(subjects)]
    axes.set_yticks(range(len(subjects)), labels, fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title(title, fontsize=8, loc="left")
    axes.margins(x=0.12)
    axes.set_ylim(-0.9, len(subjects) - 0.1)
    if latency:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)


def _colour(name: str) -> str:
    if name.startswith("Tidemark"):
        return OURS
    return DISK if name.startswith("bare") else THEIRS
