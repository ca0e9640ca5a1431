"""Who has taken which hold of broadcasts: only they release it, and nobody takes all there are."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from broker.model.failure import Refused, StreamingCode

WAITING_MAX: Final = 64
"""Holds that one caller asks for at a time, of the 256 that there are."""
KNOWN_MAX: Final = 16_384
"""Holds that are remembered, those that were never released too: each lasts for two seconds."""


class HoldTakers:
    """One for the service of a coordinator."""

    def __init__(self) -> None:
        self._waiting = Counter[str]()
        self._takers: OrderedDict[int, str] = OrderedDict()

    @contextmanager
    def waiting(self, caller: str) -> Iterator[None]:
        """Count a request for a hold during the block. Raises Refused(INNER): try again."""
        if self._waiting[caller] >= WAITING_MAX:
            cause = f"{caller!r} asks for {WAITING_MAX} holds of broadcasts already; try again"
            raise Refused(StreamingCode.INNER, cause)
        self._waiting[caller] += 1
        try:
            yield
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller]

    def took(self, hold_id: int, caller: str) -> None:
        """Remember who has a hold."""
        self._takers[hold_id] = caller
        if len(self._takers) > KNOWN_MAX:
            self._takers.popitem(last=False)

    def released(self, hold_id: int, caller: str) -> bool:
        """Whether the caller may release it, which is forgotten then."""
        if self._takers.get(hold_id) != caller:
            return False
        del self._takers[hold_id]
        return True
