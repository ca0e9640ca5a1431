"""How many transactions each identity has open, of those that began through this process.

Nobody reports an end: when an identity reaches its limit, each transaction that it began is asked
whether it is still open. So one that expired, was rolled back by an exclusive message or left with
its pchannel counts no longer, and a begin below the limit costs nothing more.
"""

from collections.abc import Callable
from typing import Final

IDENTITIES_MAX: Final = 16_384
"""When there are more, those without an open transaction are forgotten."""


def _beginning() -> bool:
    return True


def _over() -> bool:
    return False


class TxnPlace:
    """One transaction, from the append of its begin; call `begun` or `failed` once."""

    __slots__ = ("_is_open",)

    def __init__(self) -> None:
        self._is_open: Callable[[], bool] = _beginning

    def begun(self, is_open: Callable[[], bool]) -> None:
        """It has begun; `is_open` tells whether it still is."""
        self._is_open = is_open

    def failed(self) -> None:
        """It has not begun, and never will."""
        self._is_open = _over

    @property
    def taken(self) -> bool:
        """Whether it counts."""
        return self._is_open()


class TxnPlaces:
    """The places of all identities that have a limit."""

    def __init__(self) -> None:
        self._of: dict[str, list[TxnPlace]] = {}

    def __len__(self) -> int:
        """How many identities are known."""
        return len(self._of)

    def take(self, identity: str, limit: int) -> TxnPlace | None:
        """A place for one more transaction; None when `limit` of them are open."""
        taken = self._of.get(identity, [])
        if len(taken) >= limit:
            taken[:] = [it for it in taken if it.taken]
            if len(taken) >= limit:
                return None
        if identity not in self._of:
            self._make_room()
            self._of[identity] = taken
        place = TxnPlace()
        taken.append(place)
        return place

    def _make_room(self) -> None:
        if len(self._of) >= IDENTITIES_MAX:
            left = {name: [it for it in all if it.taken] for name, all in self._of.items()}
            self._of = {name: places for name, places in left.items() if places}
