"""The producers of one client, one for each pchannel."""

from collections.abc import Callable
from typing import Generic, TypeVar

from anyio.abc import TaskGroup

from broker.client.append.producer import Producer
from broker.core.naming import pchannel_of
from broker.model.ids import PChannelName, VChannelName

P = TypeVar("P", bound=Producer)


class ProducerPool(Generic[P]):
    """The producers of one kind, by pchannel; each is made and started when first needed."""

    def __init__(self, make: Callable[[PChannelName], P], tasks: TaskGroup) -> None:
        self._make = make
        self._tasks = tasks
        self._by_vchannel: dict[VChannelName, P] = {}
        self._by_pchannel: dict[PChannelName, P] = {}

    def of(self, vchannel: VChannelName) -> P:
        """The producer for the pchannel of this vchannel."""
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
