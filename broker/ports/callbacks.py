"""What happens when a broadcast is in every vchannel: one callback for each message type."""

from collections.abc import Mapping
from typing import Protocol

from broker.model.broadcast import Broadcast, Broadcasted


class FailedForGood(Exception):
    """A callback can never succeed for this broadcast; the message says why, for an operator."""


class Callback(Protocol):
    """Called when every vchannel has acknowledged, before the resource keys are let go.

    It must be idempotent: after a crash it is called again. Callbacks of conflicting broadcasts are
    called one after the other, in the order of the broadcasts. FailedForGood sends the broadcast to
    the quarantine; any other error has it called again, later, for ever.
    """

    async def __call__(self, broadcast: Broadcast, outcome: Broadcasted, /) -> None: ...


Callbacks = Mapping[int, Callback]
"""By message type. A type that has none is complete when every vchannel has acknowledged."""
