"""What the CutGate can be told or asked. Owns the vocabulary, nothing else.

For the edge: HoldBack and LetGo. The rest is for whoever appends on several vchannels what belongs
together: say UnderWay once at a start, EnterGate before the first append, LeftGate behind the last.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from actors import Request

CUT_GATE = "cut_gate"
"""The name of the actor."""
BROADCASTS = "broadcasts"
"""The party of broadcasts; entrants are named as their tasks."""
COMMITS = "commits"
"""The party of commits of batches; entrants are named as their apps."""


@dataclass(frozen=True, slots=True)
class UnderWay(Request[None]):
    """A party has started; these entrants, with their vchannels, may have appended something."""

    party: str
    entrants: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class EnterShared(Request[None]):
    """Answered once it may append; may be asked again. Ask with a deadline beyond HELD_BACK_S."""

    party: str
    name: str
    vchannels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeaveShared:
    """All it appended is durable and known to be; or it gives up for now. May be told again."""

    party: str
    name: str


@dataclass(frozen=True, slots=True)
class Held:
    """Nothing that concerns the hold is under way, or begins before it is let go.

    It ends by itself after `lease_s`.
    """

    id: int
    lease_s: float


@dataclass(frozen=True, slots=True)
class TakeHold(Request[Held]):
    """Hold back whatever would append on two or more of these channels, and wait for the rest.

    Refused(INNER): too many hold something back already, or something took too long.
    """

    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseHold(Request[bool]):
    """Whether the hold has lasted until now."""

    id: int


@dataclass(frozen=True, slots=True)
class SweepHolds:
    """A timer: see which holds are over."""


CutLockMessage = UnderWay | EnterShared | LeaveShared | TakeHold | ReleaseHold | SweepHolds
