"""The closed tick of a batch: an integer that knows on which channels it is closed."""

from collections.abc import Iterable
from typing import SupportsIndex

from broker.core.naming import pchannel_of


class BatchTick(int):
    """A time tick that says nothing about other channels than `channels`.

    The tick of a batch is closed on the batch's own channels only; another shard may be behind.
    A sum or difference with an integer is a BatchTick too, so that `batch.closed_tick + 1` cannot
    become a position of the whole collection unnoticed.
    """

    channels: tuple[str, ...]

    def __new__(cls, tick: int, channels: tuple[str, ...]) -> "BatchTick":
        made = super().__new__(cls, tick)
        made.channels = channels
        return made

    def __getnewargs__(self) -> tuple[int, tuple[str, ...]]:  # type: ignore[override]
        return int(self), self.channels

    def __add__(self, other: SupportsIndex) -> "BatchTick":
        return BatchTick(int(self) + int(other), self.channels)

    __radd__ = __add__

    def __sub__(self, other: SupportsIndex) -> "BatchTick":
        return BatchTick(int(self) - int(other), self.channels)

    def others(self, names: Iterable[str]) -> list[str]:
        """Those of the channels on which the tick need not be closed."""
        own = frozenset(self.channels)
        return [it for it in names if it not in own and pchannel_of(it) not in own]
