"""What a limit says to a call that it refuses, however busy the machine is."""

import re
from collections.abc import Awaitable, Callable

import pytest

from broker.client.errors import DeadlineExceeded, OutcomeUnknown, TidemarkError

FIRST_S, GUARD_S = 0.5, 60.0
TRIES_MAX = 8
"""Of one call: each with twice the time of the one before."""


async def refused(
    call: Callable[[float], Awaitable[object]],
    match: str,
    kind: type[TidemarkError] = DeadlineExceeded,
    first_s: float = FIRST_S,
) -> TidemarkError:
    """The error of a call, made with so many seconds for it, that a limit refuses with this text.

    The client tries again until the deadline. If that passes before the first refusal has come, its
    error cannot name the limit and says nothing: the call is made again, with more time.
    """
    deadline_s = first_s
    while True:
        try:
            landed = await call(deadline_s)
        except TidemarkError as error:
            if isinstance(error, kind) and re.search(match, str(error)):
                return error
            late = isinstance(error, DeadlineExceeded | OutcomeUnknown)
            if not late or deadline_s == GUARD_S:
                raise
        else:
            pytest.fail(f"it was not refused: {landed}")
        deadline_s = min(2 * deadline_s, GUARD_S)
