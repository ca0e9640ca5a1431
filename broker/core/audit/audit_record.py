"""One line of the audit: who did what to what, from where, and how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

NOBODY: Final = "-"
"""Who calls when no certificate says so."""
OK: Final = "ok"
Names = Mapping[str, str | int | Sequence[str]]


class AuditKind(StrEnum):
    """What a method is to the audit. Every refusal is recorded, whatever its kind."""

    ADMIN = "admin"
    """Changes what others see or how the cluster works: always recorded."""
    DATA = "data"
    """Reads, writes or acknowledges messages: recorded by setting."""
    OBSERVE = "observe"
    """Only looks: refusals alone are recorded."""
    INTERNAL = "internal"
    """Heartbeats, ticks, ids and calls between processes: refusals alone are recorded."""


class Decision(StrEnum):
    """Whether the server was willing to do it."""

    ALLOWED = "allowed"
    """It was done, or failed for a reason of the server's; the outcome has the code."""
    REFUSED = "refused"
    """The caller may not, a limit is reached, or the request is not valid."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """`who`: the subject of a certificate, else `NOBODY`. `user`: as authenticated, or "".

    `peer`: HOST:PORT, or HOST alone for a sum. `named`: what the request names, by kind of name.
    `outcome`: `OK` or the code. `repeated`: how many more of the same there were; 0 for one alone.
    Never has a payload, a key, a property or a value of a setting.
    """

    at_ms: int
    kind: AuditKind
    action: str
    method: str
    who: str
    peer: str
    decision: Decision
    outcome: str
    user: str = ""
    named: Names = field(default_factory=dict)
    took_ms: float = 0.0
    repeated: int = 0
