"""What a supervisor does when a child ends, as pure functions.

The vocabulary and the rules are those of OTP's supervisor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from actors.exit import ExitKind


class Restart(Enum):
    """After which ends a child is started again."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


class Strategy(Enum):
    """Which children are restarted together with the one that ended."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before a restart: none before the first, then `first_s`, doubling up to `max_s`."""

    first_s: float = 0.05
    max_s: float = 5.0

    def delay_s(self, attempt: int, jitter: float) -> float:
        """The wait before restart number `attempt`, from 0.

        `jitter` in [0, 1] scales the wait from half of it to all of it.
        """
        if attempt == 0:
            return 0.0
        # The exponent is bounded, because a float power overflows from 2.0 ** 1024 on.
        whole = min(self.max_s, self.first_s * 2.0 ** min(attempt - 1, 64))
        return whole * (1 + jitter) / 2


@dataclass(frozen=True, slots=True)
class Window:
    """The restarts that still count, as times in seconds, oldest first."""

    restarts_s: tuple[float, ...] = ()

    def restarted(self, now_s: float, window_s: float) -> "Window":
        """This window with one more restart at `now_s`, without those older than `window_s`."""
        recent = tuple(at_s for at_s in self.restarts_s if now_s - at_s <= window_s)
        return Window((*recent, now_s))

    def exceeds(self, restarts_max: int) -> bool:
        """Whether the supervisor must fail."""
        return len(self.restarts_s) > restarts_max


def wants_restart(restart: Restart, kind: ExitKind) -> bool:
    """Whether a child of this restart type is restarted after such an end."""
    if restart is Restart.TRANSIENT:
        return kind not in (ExitKind.NORMAL, ExitKind.SHUTDOWN)
    return restart is Restart.PERMANENT


def affected(strategy: Strategy, names: Sequence[str], ended: str) -> tuple[str, ...]:
    """The children to restart because `ended` ended, itself included, in start order."""
    if strategy is Strategy.ONE_FOR_ALL:
        return tuple(names)
    if strategy is Strategy.REST_FOR_ONE:
        return tuple(names[names.index(ended) :])
    return (ended,)
