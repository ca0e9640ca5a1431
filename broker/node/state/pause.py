"""Whether consumers that come now may begin to read.

It owns one flag, set by an operator. Milvus's rule: who has begun goes on, and who says so when it
is opened is never held back. Producers are not concerned.
Next: broker/node/scanner.py
"""

from dataclasses import dataclass


@dataclass(slots=True)
class ConsumptionPause:
    """One per node; each Scanner looks before its first read."""

    on: bool = False

    def holds(self, *, ignores_pause: bool) -> bool:
        """Whether a Scanner that has not read anything must wait."""
        return self.on and not ignores_pause
