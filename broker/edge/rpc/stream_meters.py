"""Who is connected to each pchannel, and what went out to them: counts for people.

Owns the counts; names only pchannels that were found to be served here, so there are few.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class StreamMeter:
    """Of one pchannel: streams open now, and bytes given to the transport."""

    producers: int = 0
    consumers: int = 0
    consumed_bytes: int = 0


@dataclass(slots=True)
class EdgeMeters:
    """One per server."""

    channels: dict[str, StreamMeter] = field(default_factory=dict)

    @contextmanager
    def producing(self, pchannel: str) -> Iterator[None]:
        """A Produce stream is open meanwhile."""
        meter = self.channels.setdefault(pchannel, StreamMeter())
        meter.producers += 1
        try:
            yield
        finally:
            meter.producers -= 1

    @contextmanager
    def consuming(self, pchannel: str) -> Iterator[StreamMeter]:
        """A Consume stream is open meanwhile; it counts its bytes itself."""
        meter = self.channels.setdefault(pchannel, StreamMeter())
        meter.consumers += 1
        try:
            yield meter
        finally:
            meter.consumers -= 1
