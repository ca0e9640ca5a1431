"""What happens after a broadcast reached every vchannel: one callback per message type."""

from collections.abc import Mapping
from typing import Protocol

from broker.model.broadcast import Broadcast, Broadcasted


class FailedForGood(Exception):
    """A callback cannot succeed for this broadcast; the message tells the operator why."""


class Callback(Protocol):
    """Called when every vchannel has acknowledged, before the resource keys are released.

    Must be idempotent: after a crash it is called again. Callbacks of conflicting broadcasts are
    called one after another, in the order of the broadcasts. FailedForGood puts the broadcast into
    quarantine; after any other error it is retried without limit.
    """

    async def __call__(self, broadcast: Broadcast, outcome: Broadcasted, /) -> None: ...


Callbacks = Mapping[int, Callback]
"""By message type. Without a callback a broadcast is done when every vchannel has acknowledged."""
