"""The messages of the CutLock.

The edge sends TakeHold and ReleaseHold. The other messages are for the parties: those that append
related messages on several vchannels. A party sends RestoreShared once when it starts,
AcquireShared before the first append of each of its entries and ReleaseShared after the last.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from actors import Request

CUT_LOCK = "cut_lock"
"""The name of the actor."""
BROADCASTS = "broadcasts"
"""The party of broadcasts; its entries are named after their tasks."""
COMMITS = "commits"
"""The party of batch commits; its entries are named after their apps."""


@dataclass(frozen=True, slots=True)
class RestoreShared(Request[None]):
    """Sent by a party that starts: these entries, by name, may have appended to their vchannels."""

    party: str
    entries: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class AcquireShared(Request[None]):
    """Answered when the entry may append; may be repeated. Use a deadline beyond HELD_BACK_S."""

    party: str
    name: str
    vchannels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseShared:
    """All appends of the entry are known to be durable, or it has stopped appending. Repeatable."""

    party: str
    name: str


@dataclass(frozen=True, slots=True)
class Held:
    """A granted hold: no conflicting entry is appending, and none starts before the release.

    It expires `lease_s` after it was granted.
    """

    id: int
    lease_s: float


@dataclass(frozen=True, slots=True)
class TakeHold(Request[Held]):
    """Keep out every entry that appends on two or more of `channels`, and wait for those inside.

    `exclusive`: those that append on only one of them, too.

    Refused(INNER): too many holds at once, or an entry inside took too long.
    """

    channels: tuple[str, ...]
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseHold(Request[bool]):
    """End a hold. True when it lasted until now, so that the cut taken under it is valid."""

    id: int


@dataclass(frozen=True, slots=True)
class SweepHolds:
    """A timer: end the holds whose time is over."""


CutLockMessage = RestoreShared | AcquireShared | ReleaseShared | TakeHold | ReleaseHold | SweepHolds
