"""When a switch of the log does again what failed, and what is done from time to time only."""

from collections.abc import Callable
from typing import Final

from broker.model.ids import PChannelName

RENEW_S: Final = 10.0
RENEW_S_MAX: Final = 640.0
"""Between two restarts of a pchannel whose copy fails: what takes writes may refuse ours."""
_DOUBLINGS_MAX: Final = 16
"""More change nothing; without a bound a float overflows after a week of failures."""


def grown_s(times: int) -> float:
    """The pause after so many failures behind the first one."""
    return min(RENEW_S * 2.0 ** min(times, _DOUBLINGS_MAX), RENEW_S_MAX)


class SwitchPauses:
    """Remembers when something was due last. `now_s` is a monotonic clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._at_s: dict[tuple[str, PChannelName], float] = {}

    def clear(self) -> None:
        """Forget all."""
        self._at_s = {}

    def begin(self, what: str, name: PChannelName) -> None:
        """Count the time from here on."""
        self._at_s[what, name] = self._now_s()

    def waited_s(self, what: str, name: PChannelName) -> float:
        """The time since this was asked first."""
        return self._now_s() - self._at_s.setdefault((what, name), self._now_s())

    def is_due(self, what: str, name: PChannelName, after_s: float) -> bool:
        """Whether so much time has passed since this was due last; the first time it is."""
        last_s = self._at_s.get((what, name))
        if last_s is not None and self._now_s() - last_s < after_s:
            return False
        self.begin(what, name)
        return True
