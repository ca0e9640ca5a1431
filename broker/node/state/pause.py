"""The operator's pause of consumption.

As in Milvus: consumers that have started to read continue, new ones wait, and those opened with
`ignores_pause` never wait. Producers are not affected.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class ConsumptionPause:
    """One per node; each Scanner checks it before its first read."""

    on: bool = False

    def holds(self, *, ignores_pause: bool) -> bool:
        """Whether a Scanner that has not read anything must wait."""
        return self.on and not ignores_pause
