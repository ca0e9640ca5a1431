"""A barrier over the time ticks of several peers, as shown to people."""

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
    """`tick`: the newest one it reported, 0 for none. `silent`: its report is late."""

    name: str
    tick: TimeTick
    silent: bool


@dataclass(frozen=True, slots=True)
class BarrierView:
    """One barrier now. `tick`: the newest one that passed, 0 for none.

    `waits_for`: peers whose next report is needed for the next tick. `removed`: peers that were
    silent for too long and have not joined again; ticks since then say nothing about them.
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
