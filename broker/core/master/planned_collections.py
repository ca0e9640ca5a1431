"""The ids and vchannels of collections that are planned and not yet in the table."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from broker.core.naming import pchannel_of
from broker.model.ids import CollectionId, PChannelName, VChannelName

K = TypeVar("K")


class PlannedCollections:
    """By the request key of their creation. A look-up costs the same however many there are."""

    def __init__(self) -> None:
        self._planned: dict[str, tuple[CollectionId, Sequence[VChannelName]]] = {}
        self._ids: Counter[CollectionId] = Counter()
        self._vchannels: Counter[PChannelName] = Counter()

    def __contains__(self, id: CollectionId) -> bool:
        """Whether one of them has this id."""
        return self._ids[id] > 0

    def vchannels(self, pchannel: PChannelName) -> int:
        """How many of their vchannels are on this pchannel."""
        return self._vchannels[pchannel]

    def add(self, request_key: str, id: CollectionId, vchannels: Sequence[VChannelName]) -> None:
        """One more; it takes the place of what the request has planned before."""
        self.remove(request_key)
        self._planned[request_key] = id, vchannels
        self._ids[id] += 1
        self._vchannels.update([pchannel_of(it) for it in vchannels])

    def remove(self, request_key: str) -> None:
        """The table has it, or it never came to be."""
        id, vchannels = self._planned.pop(request_key, (None, ()))
        if id is not None:
            _uncount(self._ids, id)
        for vchannel in vchannels:
            _uncount(self._vchannels, pchannel_of(vchannel))


def _uncount(counter: Counter[K], key: K) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]  # else it would grow with every collection there ever was
