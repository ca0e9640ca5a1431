"""A barrier over the time ticks of several peers, as people are shown it."""

from dataclasses import dataclass
from enum import IntEnum

from broker.model.ids import TimeTick


class BarrierKind(IntEnum):
    """Numbers of `tidemark.v1.BarrierKind`; what each passes on: `broker/core/time/barrier.py`."""

    SOFT = 1
    HARD = 2
    HARD_MINIMUM = 3


@dataclass(frozen=True, slots=True)
class BarrierPeer:
    """`tick`: the newest it reported, 0 for none. `silent`: it is late to say that it is there."""

    name: str
    tick: TimeTick
    silent: bool


@dataclass(frozen=True, slots=True)
class BarrierView:
    """One barrier now. `tick`: the newest it passed, 0 for none.

    `waits_for`: whose next report the next tick needs. `removed`: peers that fell silent for too
    long and have not come back, so that the ticks since then say nothing about them.
    """

    name: str
    kind: BarrierKind
    tick: TimeTick
    peers: tuple[BarrierPeer, ...]
    waits_for: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def silent(self) -> tuple[str, ...]:
        """The names of the peers that are late."""
        return tuple([peer.name for peer in self.peers if peer.silent])
