"""The messages of TickWindow and Oracle.

Requests that fail raise Refused.
"""

from dataclasses import dataclass

from actors import Request
from broker.ports.ticks import TickRange

# ---- TickWindow: the durable bound of the oracle ------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowGranted:
    """`bound_ms` is durable and replaced `saved_ms`. See `broker/core/time/tso.py`."""

    saved_ms: int
    bound_ms: int


@dataclass(frozen=True, slots=True)
class OpenWindow(Request[WindowGranted]):
    """A first bound for a new oracle. Raises Refused(INNER)."""


@dataclass(frozen=True, slots=True)
class ExtendWindow(Request[WindowGranted]):
    """Replace the bound `held_ms` by `bound_ms` or more. Raises Refused(INNER)."""

    held_ms: int
    bound_ms: int


WindowMessage = OpenWindow | ExtendWindow

# ---- Oracle -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reserve(Request[TickRange]):
    """Contiguous ticks that are given out once; see `TickSource.reserve`.

    `ahead_ms_max`: refused, INNER, when they would be further ahead of its time.
    """

    count: int
    ahead_ms_max: int | None = None


@dataclass(frozen=True, slots=True)
class LookAhead:
    """A timer: extend the window when it is half used up."""


@dataclass(frozen=True, slots=True)
class WindowRefused:
    """The window could not be extended."""

    cause: str


OracleMessage = Reserve | LookAhead | WindowGranted | WindowRefused
