"""Who has taken which hold of broadcasts: only they release it, and nobody takes all there are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final

from broker.model.failure import Refused, StreamingCode

HOLDS_EACH_MAX: Final = 64
"""Holds that one caller has, or asks for, at a time, of the 256 that there are."""


@dataclass(slots=True, eq=False)
class TakenHold:
    """`id` 0: it is asked for. It is over at `until_s`, whether it was released or not."""

    id: int = 0
    until_s: float = field(default=inf)


class HoldTakers:
    """One for the service of a coordinator. `now_s`: any clock that does not go back.

    `held_back_s`: how long a hold that nobody waits for any more may still be granted or kept.
    """

    def __init__(self, now_s: Callable[[], float], held_back_s: float) -> None:
        self._now_s, self._held_back_s = now_s, held_back_s
        self._holds: dict[str, list[TakenHold]] = {}

    @contextmanager
    def taking(self, caller: str) -> Iterator[TakenHold]:
        """Ask for a hold during the block, which says what was granted.

        Raises Refused(INNER), to try again, when the caller has too many.
        """
        self._forget(caller)
        holds = self._holds.setdefault(caller, [])
        if len(holds) >= HOLDS_EACH_MAX:
            cause = f"{caller!r} has, or asks for, {HOLDS_EACH_MAX} holds of broadcasts; try again"
            raise Refused(StreamingCode.INNER, cause)
        hold = TakenHold()
        holds.append(hold)
        try:
            yield hold
        finally:
            if not hold.id:
                hold.until_s = self._now_s() + self._held_back_s

    def granted(self, hold: TakenHold, id: int, lease_s: float) -> None:
        """It lasts for `lease_s` from now on."""
        hold.id, hold.until_s = id, self._now_s() + lease_s

    def released(self, id: int, caller: str) -> bool:
        """Whether the caller may release it, which is forgotten then."""
        found = next((it for it in self._holds.get(caller, ()) if it.id == id), None)
        if found is not None and id:
            self._holds[caller].remove(found)
        self._forget(caller)
        return found is not None and id != 0

    def _forget(self, caller: str) -> None:
        now_s = self._now_s()
        left = [it for it in self._holds.pop(caller, ()) if it.until_s > now_s]
        if left:
            self._holds[caller] = left
