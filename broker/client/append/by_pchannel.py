"""The producers of one kind, one for each pchannel that was ever appended to.

Owns which there are; each is made, and begins to run, when it is first needed.
Next: broker/client/append/producer.py
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from anyio.abc import TaskGroup

from broker.client.append.producer import Producer
from broker.core.naming import pchannel_of
from broker.model.ids import PChannelName, VChannelName

P = TypeVar("P", bound=Producer)


class ByPChannel(Generic[P]):
    """See the module."""

    def __init__(self, make: Callable[[PChannelName], P], tasks: TaskGroup) -> None:
        self._make = make
        self._tasks = tasks
        self._by_vchannel: dict[VChannelName, P] = {}
        self._by_pchannel: dict[PChannelName, P] = {}

    def of(self, vchannel: VChannelName) -> P:
        """The one that this vchannel is appended through."""
        return self._by_vchannel.get(vchannel) or self._made(vchannel)

    def all(self) -> list[P]:
        """Those that were made."""
        return list(self._by_pchannel.values())

    def _made(self, vchannel: VChannelName) -> P:
        name = pchannel_of(vchannel)
        producer = self._by_pchannel.get(name)
        if producer is None:
            producer = self._by_pchannel[name] = self._make(name)
            self._tasks.start_soon(producer.run)
        self._by_vchannel[vchannel] = producer
        return producer
