"""The picture of a benchmark: a panel for each question, whatever was measured."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from benchmark import names
from benchmark.results import picture
from benchmark.results.figures import IDLE, P50, RATE, TICK, Round, Series
from benchmark.results.questions import FRAMES, IDLE_READER, IDLE_SERVER, ONE_BY_ONE, QUESTIONS
from matplotlib import pyplot
from matplotlib.text import Text


def some() -> list[Series]:
    return [
        Series(names.REDIS_APPEND, "append", "each command", rounds=[Round({RATE: 10.0})] * 2),
        Series(names.PRODUCE, FRAMES, "before answer", rounds=[Round({RATE: 30.0})] * 2),
        Series(names.ONE, ONE_BY_ONE, rounds=[Round({P50: 0.6})]),
        Series(names.REDIS_ONE, ONE_BY_ONE, rounds=[Round({P50: 0.3})]),
        Series(names.NATS_IDLE, IDLE_SERVER, rounds=[Round({IDLE: 0.0})]),
        Series(names.IDLE_BROKER, IDLE_SERVER, rounds=[Round({IDLE: 1.0})]),
        Series(names.IDLE_BATCHES, IDLE_READER, rounds=[Round({TICK: 20.0})]),
    ]


def test_a_picture_of_some_questions_explains_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(pyplot, "close", kept.append)
    assert picture.draw(some(), tmp_path / "bench.png", "3 rounds, 2 CPUs")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = kept
    assert "Tidemark beside" in figure.get_suptitle()
    assert "3 rounds, 2 CPUs" in [it.get_text() for it in figure.texts]
    (legend,) = figure.legends
    assert "other servers" in [it.get_text() for it in legend.get_texts()]
    axes = {it.get_title(loc="left"): it for it in figure.axes}
    assert list(axes) == [
        "One awaited append, p50", "Durable appends, a message a frame", "CPU of an idle server",
        "CPU of the server for each tick of an idle reader",
    ]  # fmt: skip
    frames, idle = axes["Durable appends, a message a frame"], axes["CPU of an idle server"]
    assert frames.get_xscale() == "log"
    assert "messages/s" in frames.get_xlabel()
    assert "further right is better" in frames.get_xlabel()
    assert idle.get_xscale() == "linear", "nothing is a multiple of zero"
    assert "% of a core (further left is better)" in idle.get_xlabel()


def everything() -> list[Series]:
    """Names as long as the longest ones, and large figures, for every question."""
    found: dict[str, Series] = {}
    for number, question in enumerate(QUESTIONS):
        names_of = [question.reference, *question.also]
        names_of += [f"Tidemark append_batch, of 100, 10 % in txns {number}{at}" for at in range(2)]
        for at, name in enumerate(it for it in names_of if it):
            rounds = [Round({question.key: 9_999_999.0 / 10**at * it}) for it in (1, 1.5)]
            kept = found.setdefault(name, Series(name, question.kind, "by the system"))
            kept.rounds = kept.rounds or rounds
    return list(found.values())


def shown(figure: Any) -> Iterator[Text]:
    """All texts but those of ticks beyond the ends of their axis, which are not drawn."""
    yield from figure.texts
    yield from figure.legends[0].get_texts()
    for axes in figure.axes:
        yield from [axes.title, axes._left_title, axes.xaxis.label, *axes.texts]
        yield from axes.get_yticklabels()
        low, high = axes.get_xlim()
        for tick in axes.xaxis.get_major_ticks():
            if low <= tick.get_loc() <= high:
                yield tick.label1


def test_no_text_lies_on_another_or_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(pyplot, "close", kept.append)
    picture.draw(everything(), tmp_path / "bench.png", "2026-11-23 05:06 UTC, rounds: 5")
    (figure,) = kept
    figure.canvas.draw()
    boxes = {it: it.get_window_extent() for it in shown(figure) if it.get_text().strip()}
    assert len(boxes) > 80
    width, height = figure.canvas.get_width_height()
    outside = [
        text.get_text()
        for text, box in boxes.items()
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]
    assert outside == []
    touching = [
        (one.get_text(), other.get_text())
        for (one, box), (other, around) in combinations(boxes.items(), 2)
        if box.overlaps(around)
    ]
    assert touching == []


def test_nothing_measured_makes_no_picture(tmp_path: Path) -> None:
    assert not picture.draw([], tmp_path / "bench.png", "")
    assert not picture.draw([Series("never run", "read")], tmp_path / "bench.png", "")
    assert list(tmp_path.iterdir()) == []
