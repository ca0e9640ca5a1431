"""Windows by the clock of the log, against all messages of the log."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.msgstream.log_windows import BrokenPromise, LogWindow, LogWindows, Run

SOURCES = ("a", "b", "c")


def run_of(*ticks: int, source: str = "a", nbytes: int = 1) -> Run[list[tuple[str, int]]]:
    return Run(ticks, nbytes, [(source, tick) for tick in ticks])


def messages(window: LogWindow[list[tuple[str, int]]]) -> list[tuple[str, int]]:
    return [each for part in window.parts for each in part.body[part.first : part.stop]]


def test_a_window_ends_at_the_smallest_closed_tick_of_all_sources() -> None:
    windows = LogWindows[list[tuple[str, int]]](["a", "b"])
    windows.add("a", run_of(5, 10, 15), 15)
    assert not windows.ready
    assert windows.lowest == "b"
    windows.close("b", 10)
    window = windows.take()
    assert (window.begin, window.end) == (0, 10)
    assert messages(window) == [("a", 5), ("a", 10)]  # a message at the end is inside
    windows.close("b", 20)
    window = windows.take()
    assert (window.begin, window.end) == (10, 15)
    assert messages(window) == [("a", 15)]
    assert windows.held_bytes == 0


def test_an_empty_window_moves_time_on() -> None:
    windows = LogWindows[list[tuple[str, int]]](["a"], after=7)
    windows.add("a", run_of(), 9)
    assert windows.take() == LogWindow(7, 9, [])
    assert windows.end == 9


@pytest.mark.parametrize("tick", [4, 5])
def test_a_message_below_a_closed_tick_is_an_error_with_both_ticks(tick: int) -> None:
    windows = LogWindows[list[tuple[str, int]]](["a"])
    windows.close("a", 5)
    with pytest.raises(BrokenPromise, match=rf"a delivered a message with tick {tick}.*tick 5"):
        windows.add("a", run_of(tick), 6)


def test_a_closed_tick_never_falls() -> None:
    windows = LogWindows[list[tuple[str, int]]](["a"])
    windows.close("a", 5)
    windows.close("a", 3)
    assert windows.take().end == 5


@st.composite
def logs(draw: st.DrawFn) -> dict[str, list[list[int]]]:
    """For each source the runs of its log; ticks grow, those of a transaction are equal."""
    log = {}
    for source in SOURCES:
        ticks = sorted(draw(st.lists(st.integers(1, 60), max_size=25)))
        runs: list[list[int]] = []
        for tick in ticks:
            # One tick is never in two runs: a source closes it with its last message.
            if runs and (runs[-1][-1] == tick or draw(st.booleans())):
                runs[-1].append(tick)
            else:
                runs.append([tick])
        log[source] = runs
    return log


def expected(log: dict[str, list[list[int]]], after: int) -> list[tuple[str, int]]:
    """The naive model: everything behind a tick, once."""
    every = [(name, tick) for name, runs in log.items() for run in runs for tick in run]
    return sorted(each for each in every if each[1] > after)


@given(logs(), st.integers(0, 60), st.randoms(use_true_random=False))
def test_windows_are_the_log_once_whatever_comes_first_and_wherever_it_starts(
    log: dict[str, list[list[int]]], after: int, chance: object
) -> None:
    windows = LogWindows[list[tuple[str, int]]](SOURCES, after)
    todo: dict[str, list[list[int]]] = {
        name: [behind for run in runs if (behind := [it for it in run if it > after])]
        for name, runs in log.items()
    }
    found: list[LogWindow[list[tuple[str, int]]]] = []
    ended: set[str] = set()
    while len(ended) < len(SOURCES) or windows.ready:
        if windows.ready and chance.choice([True, False]):  # type: ignore[attr-defined]
            found.append(windows.take())
            continue
        # The lowest, as a stream does, or any: the windows hold either way.
        source = chance.choice([windows.lowest, *SOURCES])  # type: ignore[attr-defined]
        if todo[source]:
            run = todo[source].pop(0)
            closed = todo[source][0][0] - 1 if todo[source] else run[-1]
            windows.add(source, run_of(*run, source=source), chance.randint(run[-1], closed))  # type: ignore[attr-defined]
        else:
            windows.close(source, 61)
            ended.add(source)
    assert check_chain(found, after) == 61
    assert sorted(each for it in found for each in messages(it)) == expected(log, after)
    for window in found:
        assert all(window.begin < tick <= window.end for _, tick in messages(window))
        for source in SOURCES:
            ticks = [tick for name, tick in messages(window) if name == source]
            assert ticks == sorted(ticks)
    assert windows.held_bytes == 0


def check_chain(found: Sequence[LogWindow[list[tuple[str, int]]]], after: int) -> int:
    """The end of the last window; each begins where the one before it ended."""
    for window in found:
        assert window.begin == after < window.end
        after = window.end
    return after
