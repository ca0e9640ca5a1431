"""How a thread waits for the result of a call: in slices, which change no outcome."""

import threading
from concurrent.futures import Future

import pytest

from broker.client.errors import ClosedClient
from broker.client.sync import loop_thread
from broker.client.sync.loop_thread import _outcome


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "LOOK_S", 0.001)


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_a_result_that_comes_after_many_slices_is_returned(timeout_s: float | None) -> None:
    future: Future[str] = Future()
    threading.Timer(0.05, future.set_result, ["late"]).start()
    assert _outcome(future, timeout_s) == "late"


@pytest.mark.parametrize("timeout_s", [None, 60.0])
@pytest.mark.parametrize("error", [TimeoutError("its own"), ValueError("its own")])
def test_an_error_of_the_call_is_raised_also_one_that_says_timeout(
    error: Exception, timeout_s: float | None
) -> None:
    future: Future[str] = Future()
    threading.Timer(0.05, future.set_exception, [error]).start()
    with pytest.raises(type(error), match="its own"):
        _outcome(future, timeout_s)
    assert not future.cancelled()


@pytest.mark.parametrize("timeout_s", [0.0, 0.0005, 0.02])
def test_a_call_without_an_answer_in_time_is_cancelled(timeout_s: float) -> None:
    future: Future[str] = Future()
    with pytest.raises(TimeoutError):
        _outcome(future, timeout_s)
    assert future.cancelled()


def test_a_call_that_is_cancelled_meanwhile_says_that_the_client_was_closed() -> None:
    future: Future[str] = Future()
    threading.Timer(0.05, future.cancel).start()
    with pytest.raises(ClosedClient, match="during the call"):
        _outcome(future, None)
