"""An interrupt between the end of a step and its return loses nothing, and changes no order."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.client.sync.blocking import Steps
from broker.client.sync.loop_thread import LoopThread


class InterruptedOnce(LoopThread):
    """Runs every call to its end, and interrupts the caller of the first one after that."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.interrupts = 1

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        result = self.loop.run_until_complete(function(*args, **kwargs))
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        return result


@pytest.fixture
def thread() -> Iterator[InterruptedOnce]:
    thread = InterruptedOnce()
    yield thread
    thread.loop.close()


def test_the_next_step_returns_what_the_interrupted_one_got(thread: InterruptedOnce) -> None:
    numbers = iter(range(1, 4))

    async def step() -> int:
        try:
            return next(numbers)
        except StopIteration:
            raise StopAsyncIteration from None

    steps = Steps(thread)
    with pytest.raises(KeyboardInterrupt):
        steps.next(step)
    assert steps.left_over()
    assert [steps.next(step), steps.next(step), steps.next(step)] == [1, 2, 3]
    assert not steps.left_over()
    with pytest.raises(StopIteration):
        steps.next(step)
