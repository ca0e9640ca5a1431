"""The keys in force, and who waits for newer ones."""

from collections.abc import Callable
from typing import Final

import anyio
import structlog

from broker.core.security.key_refresh import KeyRefresh
from broker.edge.access.jwt.key_set import KeySet

log = structlog.get_logger(__name__)

WAIT_S_MAX: Final = 6.0
"""How long a call waits for the key that signed its token; longer than one read may take."""
WAITING_MAX: Final = 1_024
"""Calls that wait at a time; one more is decided by the keys that are known."""


class KeyRing:
    """One for a process. Keys stay in force until others were read."""

    def __init__(self, refresh: KeyRefresh, now_s: Callable[[], float]) -> None:
        self.refresh = refresh
        self.now_s = now_s
        self.keys = KeySet()
        self.published = b""
        """What they were read from."""
        self.seen_s: float | None = None
        """When they were last read; None: never."""
        self.failure = ""
        """Why they cannot be read since then."""
        self.on_change: Callable[[], None] = _ignore
        """Called when other keys are in force."""
        self._ended = anyio.Event()
        self._waiting = 0

    def begin(self) -> None:
        """A read begins."""
        self.refresh.begin(self.now_s())

    def adopt(self, keys: KeySet) -> None:
        """These were read."""
        for ignored in keys.ignored:
            if ignored not in self.keys.ignored:
                log.warning("a key of the identity provider cannot be used", because=ignored)
        changed, self.keys = keys is not self.keys, keys
        self.seen_s = self.now_s()
        self.failure = ""
        if changed:
            self.on_change()

    def keep(self, failure: str) -> None:
        """Nothing could be read: what is known stays in force."""
        if not self.failure:
            log.warning("cannot read the keys of the identity provider", error=failure)
        self.failure = failure

    def end(self) -> None:
        """The read has ended, in whatever way."""
        self.refresh.end(failed=bool(self.failure))
        ended, self._ended = self._ended, anyio.Event()
        ended.set()

    async def until_known(self, key_id: str) -> None:
        """Wait until this key is known, or until it is clear that it will not be; WAIT_S_MAX."""
        if key_id in self.keys.ids or not self.refresh.want(self.now_s()):
            return
        if self._waiting >= WAITING_MAX:
            return
        self._waiting += 1
        try:
            with anyio.move_on_after(WAIT_S_MAX):
                await self._ended.wait()
        finally:
            self._waiting -= 1

    def warnings(self) -> list[str]:
        """What an operator should know of them."""
        found = list(self.keys.ignored)
        if self.failure:
            since = "" if self.seen_s is None else f" for {self.now_s() - self.seen_s:.0f} s"
            state = f"the last {len(self.keys)} stay in force" if self.keys else "JWTs are refused"
            found.append(
                f"the keys of the identity provider (jwt_jwks) were not read{since}"
                f" ({self.failure}); {state}"
            )
        elif not self.keys:
            found.append("the identity provider (jwt_jwks) has no key that fits: JWTs are refused")
        return found


def _ignore() -> None:
    """Nobody listens yet."""
