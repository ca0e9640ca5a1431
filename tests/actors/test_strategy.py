"""The pure rules against a naive model that keeps everything and counts."""

from hypothesis import given
from hypothesis import strategies as st

from actors.exit import ExitKind
from actors.strategy import Backoff, Restart, Strategy, Window, affected, wants_restart

names = st.lists(st.text("abcdef", min_size=1), unique=True, min_size=1)


@given(
    gaps_s=st.lists(st.floats(0, 20), max_size=40),
    restarts_max=st.integers(0, 6),
    window_s=st.floats(0.1, 30),
)
def test_a_window_counts_the_restarts_of_its_last_seconds(
    gaps_s: list[float], restarts_max: int, window_s: float
) -> None:
    window, now_s, all_s = Window(), 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        all_s.append(now_s)
        window = window.restarted(now_s, window_s)
        naive = sum(1 for at_s in all_s if now_s - at_s <= window_s)
        assert window.exceeds(restarts_max) == (naive > restarts_max)
        assert len(window.restarts_s) == naive


@given(names, st.data(), st.sampled_from(Strategy))
def test_who_goes_down_together(siblings: list[str], data: st.DataObject, how: Strategy) -> None:
    ended = data.draw(st.sampled_from(siblings))
    down = affected(how, siblings, ended)
    for name in siblings:
        later = siblings.index(name) >= siblings.index(ended)
        expected = {
            Strategy.ONE_FOR_ONE: name == ended,
            Strategy.ONE_FOR_ALL: True,
            Strategy.REST_FOR_ONE: later,
        }[how]
        assert (name in down) == expected
    assert list(down) == [name for name in siblings if name in down]


def test_a_permanent_child_always_comes_back_and_a_temporary_never() -> None:
    assert all(wants_restart(Restart.PERMANENT, kind) for kind in ExitKind)
    assert not any(wants_restart(Restart.TEMPORARY, kind) for kind in ExitKind)


def test_a_transient_child_comes_back_only_after_an_accident() -> None:
    accidents = {kind for kind in ExitKind if wants_restart(Restart.TRANSIENT, kind)}
    assert accidents == {ExitKind.CRASHED, ExitKind.KILLED, ExitKind.START_FAILED}


@given(st.integers(1, 5000), st.floats(0, 1), st.floats(0.001, 1), st.floats(1, 60))
def test_backoff_doubles_up_to_its_cap(
    attempt: int, jitter: float, first_s: float, max_s: float
) -> None:
    due_s = first_s
    for _ in range(min(attempt, 100) - 1):
        due_s = min(max_s, due_s * 2)
    delay_s = Backoff(first_s, max_s).delay_s(attempt, jitter)
    assert due_s / 2 * 0.999 <= delay_s <= due_s * 1.001


def test_the_first_restart_does_not_wait() -> None:
    assert Backoff(1.0, 5.0).delay_s(0, 1.0) == 0.0
