"""When consumer groups get a message, as its producer said."""

from typing import Final

from broker.value import value


@value
class DeliveryTimes:
    """`at_ms`: not before this Unix time. `ttl_ms`: for so long from then on. 0: not said."""

    at_ms: int = 0
    ttl_ms: int = 0


@value
class ReleasedMessage:
    """Which delayed message a stored copy is of: its own id, and the time it was due."""

    at_ms: int
    id: int


AHEAD_MS_MAX: Final = 366 * 24 * 3600 * 1000
"""How far ahead a message may be delayed, and how long it may last."""
