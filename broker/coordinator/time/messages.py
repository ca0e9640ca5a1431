"""The messages of TickWindow and Oracle.

Requests that fail raise Refused.
"""

from dataclasses import dataclass

from actors import Ref, Request
from broker.ports.ticks import TickRange

# ---- TickWindow: the durable bound of the oracle ------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowGranted:
    """`bound_ms` is durable; `saved_ms` was before it. See `broker/core/time/tso.py`."""

    saved_ms: int
    bound_ms: int


@dataclass(frozen=True, slots=True)
class WindowRefused:
    """The bound could not be made durable."""

    cause: str


@dataclass(frozen=True, slots=True)
class OpenWindow(Request[WindowGranted]):
    """A bound for a new holder. Raises Refused(INNER)."""


@dataclass(frozen=True, slots=True)
class ExtendWindow:
    """Replace the bound `held_ms` by `bound_ms`, or a larger one; `holder` is told the outcome."""

    held_ms: int
    bound_ms: int
    holder: "Ref[WindowGranted | WindowRefused]"


WindowMessage = OpenWindow | ExtendWindow

# ---- Oracle -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reserve(Request[TickRange]):
    """Contiguous ticks that nobody else gets; see `TickSource.reserve`."""

    count: int


@dataclass(frozen=True, slots=True)
class LookAhead:
    """A timer: see whether the bound should be moved on."""


OracleMessage = Reserve | LookAhead | WindowGranted | WindowRefused
