"""The picture of a benchmark: a panel for each question, whatever was measured."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from benchmark import names
from benchmark.results import picture
from benchmark.results.figures import IDLE, P50, RATE, TICK, Round, Series
from benchmark.results.questions import FRAMES, IDLE_READER, IDLE_SERVER, ONE_BY_ONE
from matplotlib import pyplot


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
    picture.draw(some(), tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = kept
    assert "Tidemark beside" in figure.get_suptitle()
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


def test_nothing_measured_makes_no_picture(tmp_path: Path) -> None:
    picture.draw([], tmp_path / "bench.png")
    picture.draw([Series("never run", "read")], tmp_path / "bench.png")
    assert list(tmp_path.iterdir()) == []
