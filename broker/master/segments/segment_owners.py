"""Orders about growing segments, for the owners of their pchannels."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping

import anyio

from broker.core.naming import pchannel_of
from broker.model.channel import ChannelOffsets
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId, PChannelName, SegmentId, TimeTick
from broker.model.master.reservation import SegmentOrders
from broker.ports.nodes import NodeControl

ORDER_S = 5.0

Owners = Callable[[], Awaitable[Mapping[PChannelName, NodeControl]]]
DescribeChannels = Callable[[], Awaitable[Mapping[PChannelName, ChannelOffsets]]]


class SegmentOwners:
    """The owners of all pchannels, whichever nodes they are on now."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    async def report_binlogs(self, counts: Iterable[tuple[str, SegmentId, int]]) -> None:
        """Report the files of segments, given with their vchannels. Refused(INNER): repeat it."""
        by_pchannel: dict[PChannelName, list[tuple[SegmentId, int]]] = defaultdict(list)
        for vchannel, id, count in counts:
            by_pchannel[pchannel_of(vchannel)].append((id, count))
        await self._send({it: SegmentOrders(tuple(of)) for it, of in by_pchannel.items()})

    async def seal(self, vchannel: str, id: SegmentId) -> None:
        """Have one segment sealed. Refused(INNER): repeat it."""
        await self._send({pchannel_of(vchannel): SegmentOrders(seal=(id,))})

    async def seal_collection(self, id: CollectionId, vchannels: Iterable[str]) -> None:
        """Have all growing segments of a collection sealed. Refused(INNER): repeat it."""
        orders = SegmentOrders(seal_collections=(id,))
        await self._send({pchannel_of(it): orders for it in vchannels})

    async def _send(self, orders: Mapping[PChannelName, SegmentOrders]) -> None:
        if not orders:
            return
        owners = await self._owners()
        failed: list[str] = []

        async def send(name: PChannelName, order: SegmentOrders) -> None:
            owner = owners.get(name)
            try:
                if owner is None:
                    raise Refused(StreamingCode.INNER, f"{name} has no owner")
                await owner.order_segments(name, order)
                done.add(name)
            except Refused as error:
                failed.append(error.refusal.cause)

        done: set[PChannelName] = set()
        with anyio.move_on_after(ORDER_S):
            async with anyio.create_task_group() as sending:
                for name, order in orders.items():
                    sending.start_soon(send, name, order)
        silent = orders.keys() - done
        if silent:
            why = failed[0] if failed else f"the owner of {min(silent)} does not answer"
            raise Refused(StreamingCode.INNER, f"{why}; try again")


async def passed_ticks(
    describe: DescribeChannels, pchannels: Iterable[PChannelName]
) -> tuple[TimeTick, TimeTick] | None:
    """The tick up to which every pchannel is closed, and that up to which it is processed.

    None while a pchannel has no owner that answers. Rows get their ticks from the log, so what is
    closed is what every writer has passed.
    """
    found = await describe()
    if any(name not in found for name in pchannels):
        return None
    closed = min([it.closed_tick for it in found.values()])
    observed = min([it.observed_tick for it in found.values()])
    return closed, min(closed, observed)
