"""Count open streams and sent bytes for each pchannel, for metrics.

Only pchannels that are served here have a meter, so there are few.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class StreamMeter:
    """One pchannel: streams open now, and bytes handed to the transport."""

    producers: int = 0
    consumers: int = 0
    consumed_bytes: int = 0


@dataclass(slots=True)
class EdgeMeters:
    """The meters of one server."""

    channels: dict[str, StreamMeter] = field(default_factory=dict)
    limit_refused: int = 0
    limit_wait_s: float = 0.0
    """What limits of collections and identities refused, and made wait."""

    @contextmanager
    def producing(self, pchannel: str) -> Iterator[None]:
        """Count a Produce stream as open during the block."""
        meter = self.channels.setdefault(pchannel, StreamMeter())
        meter.producers += 1
        try:
            yield
        finally:
            meter.producers -= 1

    @contextmanager
    def consuming(self, pchannel: str) -> Iterator[StreamMeter]:
        """Count a Consume stream as open during the block, which counts its bytes in the meter."""
        meter = self.channels.setdefault(pchannel, StreamMeter())
        meter.consumers += 1
        try:
            yield meter
        finally:
            meter.consumers -= 1
