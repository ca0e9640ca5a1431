"""Reads the keys of the identity provider again: from time to time, and when one is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from actors import Actor, Context, Envelope
from broker.app.security.key_sources import BadSource, KeySource
from broker.edge.access.jwt.key_ring import KeyRing
from broker.edge.access.jwt.key_set import BadKeySet, read_key_set

LOOK_S: Final = 0.25


async def read_if_due(ring: KeyRing, source: KeySource) -> bool:
    """Read the keys if it is time to; whether it was. A failure is noted in the ring."""
    if not ring.refresh.due(ring.now_s()):
        return False
    ring.begin()
    try:
        data = await source.read()
        # The same object while nothing changes: tokens that were checked stay so.
        ring.adopt(ring.keys if data == ring.published else read_key_set(data))
        ring.published = data
    except (BadSource, BadKeySet) as error:
        ring.keep(str(error))
    finally:
        # Also when it is cancelled: else nobody would ever read again.
        ring.end()
    return True


@dataclass(frozen=True, slots=True)
class LookAtKeys:
    """A timer: read the keys if it is time to."""


class KeyWatch(Actor[LookAtKeys]):
    """One for a process."""

    def __init__(self, ring: KeyRing, source: KeySource) -> None:
        self._ring = ring
        self._source = source
        self._reads = 0

    async def started(self, context: Context[LookAtKeys]) -> None:
        """Look every LOOK_S."""
        context.on_beat(LOOK_S, LookAtKeys())

    async def receive(self, batch: Sequence[Envelope[LookAtKeys]]) -> None:
        """Read what is due."""
        self._reads += await read_if_due(self._ring, self._source)

    def statistics(self) -> Mapping[str, int | float | str]:
        """Shown by `tidemark actors`."""
        return {"keys": len(self._ring.keys), "reads": self._reads, "failure": self._ring.failure}
