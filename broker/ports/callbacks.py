"""What happens after a broadcast reached every vchannel: one callback per message type."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class EndRecord:
    """The record that ends a broadcast: it replaces the one at `revision` of `key`."""

    key: str
    value: bytes
    revision: int


class EndsBroadcast(ABC):
    """A Callback whose changes lie in the store that has the broadcast's record.

    It may write both at once, which saves synced writes.
    """

    @abstractmethod
    async def __call__(self, broadcast: Broadcast, outcome: Broadcasted, /) -> None:
        """See Callback."""

    @abstractmethod
    def ends(self, broadcast: Broadcast, end: EndRecord, /) -> bool:
        """Whether `apply_with_end` may be called: every change it makes is in the write of `end`.

        Then nothing about the broadcast needs to be stored before: a crash leaves both or neither.
        """

    @abstractmethod
    async def apply_with_end(
        self, broadcast: Broadcast, outcome: Broadcasted, end: EndRecord, /
    ) -> int | None:
        """As a Callback. The new revision of `end`; None: there was nothing to change or store.

        Conflict, with no change made, when the record is not the one that `end` replaces.
        """


Callbacks = Mapping[int, Callback]
"""By message type. Without a callback a broadcast is done when every vchannel has acknowledged."""
