"""Follows the stored users, roles and tokens: each change reaches the gate within a second.

At once where the store tells of changes (`ProcessAccess.followed`); this is for when it is silent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import structlog

from actors import Actor, Context, Envelope
from broker.edge.rpc.access.access_records import AccessRecords
from broker.edge.rpc.access.book_refresh import read_newer
from broker.edge.rpc.access.gate import AccessGate
from broker.model.failure import Refused

log = structlog.get_logger(__name__)

LOOK_S: Final = 0.5
READ_S: Final = 5.0
"""A look that takes longer has failed, and is repeated."""
BLIND_S_MAX: Final = 30.0
"""`health` says it when the store was not read for so long."""


@dataclass(frozen=True, slots=True)
class LookAtBook:
    """A timer: read what has changed."""


@dataclass(slots=True)
class Sight:
    """When the store was last read, on the clock `now_s`, and why it cannot be read since then."""

    now_s: Callable[[], float]
    seen_s: float
    failing: str = ""

    def warnings(self) -> list[str]:
        """What an operator should know of it."""
        blind_s = self.now_s() - self.seen_s
        if blind_s < BLIND_S_MAX:
            return []
        why = self.failing or "busy"
        told = f"users, roles and tokens were not read for {blind_s:.0f} s ({why})"
        return [f"{told}; revocations are not noticed meanwhile: look at the metadata store"]


class BookWatch(Actor[LookAtBook]):
    """One for a process. A store that does not answer changes nothing: the last book holds."""

    def __init__(self, records: AccessRecords, gate: AccessGate, sight: Sight) -> None:
        self._records = records
        self._gate = gate
        self._sight = sight
        self._failures = 0

    async def started(self, context: Context[LookAtBook]) -> None:
        """Look every LOOK_S."""
        context.on_beat(LOOK_S, LookAtBook())

    async def receive(self, batch: Sequence[Envelope[LookAtBook]]) -> None:
        """Read what has changed, and end what is over."""
        sight = self._sight
        try:
            with anyio.fail_after(READ_S):
                await read_newer(self._records, self._gate)
        except Refused as refused:
            self._failed(refused.refusal.cause)
        except TimeoutError:
            self._failed(f"no answer within {READ_S:g} s")
        else:
            sight.failing = ""
            sight.seen_s = sight.now_s()
        # Also without the store: what has expired needs no record to end.
        self._gate.look()

    def statistics(self) -> Mapping[str, int | float | str]:
        """Shown by `tidemark actors`."""
        return {"epoch": self._gate.book.epoch, "failures": self._failures}

    def _failed(self, cause: str) -> None:
        self._failures += 1
        if not self._sight.failing:
            log.warning("cannot read users, roles and tokens; retrying", error=cause)
        self._sight.failing = cause
