"""Waits as long as something changes: a storm judges promises, and not the speed of a machine."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

import anyio

from broker.client.errors import DeadlineExceeded

T = TypeVar("T")

STILL_S = 60.0
"""Behind the last fault: so long without any change is an end that does not come."""
MOST_S = 240.0
"""So long in all, whatever changes."""

AGAIN_S = 0.1


class Patience:
    """See `patient`."""

    def __init__(self, still_s: float, most_s: float) -> None:
        self._still_s, self._most_s = still_s, most_s
        self._began_s = anyio.current_time()
        self._scope = anyio.move_on_after(min(still_s, most_s))
        self._seen: set[object] = set()

    def __enter__(self) -> Self:
        self._scope.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return bool(self._scope.__exit__(kind, error, trace))

    @property
    def ran_out(self) -> bool:
        """Whether the block was cancelled because nothing changed any more."""
        return self._scope.cancelled_caught

    @property
    def waited(self) -> str:
        """How long it has waited, for the text of a violation."""
        waited_s = anyio.current_time() - self._began_s
        return f"{waited_s:.0f} s later, at least {self._still_s:.0f} s of them without a change"

    def saw(self, state: object) -> None:
        """What is left now; hashable. A state that was there before is no progress."""
        if state not in self._seen:
            self._seen.add(state)
            until_s = anyio.current_time() + self._still_s
            self._scope.deadline = min(self._began_s + self._most_s, until_s)


def patient(still_s: float = STILL_S, most_s: float = MOST_S) -> Patience:
    """A block that is cancelled `still_s` after it last `saw` a new state, or after `most_s`."""
    return Patience(still_s, most_s)


async def asked_again(call: Callable[[], Awaitable[T]], most_s: float = MOST_S) -> T:
    """Its answer, although the client gives up after seconds. Raises TimeoutError after `most_s`.

    For calls that may be repeated: a storm does not judge how long a channel has no owner.
    """
    with anyio.fail_after(most_s):
        while True:
            try:
                return await call()
            except DeadlineExceeded:
                await anyio.sleep(AGAIN_S)
