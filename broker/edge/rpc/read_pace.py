"""Holds one stream of reads to the limits of what it reads and of who reads."""

from collections import Counter
from collections.abc import Sequence

from broker.core.log.delivery import DeliveredItem
from broker.edge.rpc.middleware import Call
from broker.model.message import Delivered
from broker.model.record import RecordSlice


class ReadPace:
    """Of one stream. `channel`: what it reads; a pchannel when it reads several vchannels."""

    def __init__(self, call: Call, channel: str) -> None:
        self._quotas = call.quotas
        self._call = call
        self._channel = channel

    @property
    def limited(self) -> bool:
        """Whether anything has a limit now."""
        return self._quotas.limited

    async def wait(self, items: Sequence[DeliveredItem]) -> None:
        """Wait until these may be sent. Costs nothing without limits."""
        if not self._quotas.limited or not items:
            return
        for vchannel, size_bytes, messages in self._amounts(items):
            subjects = await self._quotas.subjects(vchannel, self._call.identity)
            await self._quotas.wait_out(subjects, size_bytes, messages)

    async def pay(self, items: Sequence[DeliveredItem]) -> None:
        """Count what was sent, and wait until nothing is owed for it."""
        if not self._quotas.limited or not items:
            return
        for vchannel, size_bytes, messages in self._amounts(items):
            subjects = await self._quotas.subjects(vchannel, self._call.identity)
            for amounts in ((size_bytes, messages), (0, 0)):
                await self._quotas.wait_out(subjects, *amounts)

    def _amounts(self, items: Sequence[DeliveredItem]) -> list[tuple[str, int, int]]:
        sizes: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for item in items:
            match item:
                case RecordSlice(record=record, first=first, end=end):
                    sizes[record.vchannel] += sum(record.sizes[first:end])
                    counts[record.vchannel] += end - first
                case Delivered():  # of a transaction; it does not name its vchannel
                    sizes[self._channel] += len(item.body)
                    counts[self._channel] += 1
                case _:
                    continue  # ticks are free
        return [(it, sizes[it], count) for it, count in counts.items()]
