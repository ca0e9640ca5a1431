"""The calls of the master: `log.master`."""

from collections.abc import Callable

from anyio.abc import TaskGroup

from broker.client.cluster.service import ServiceCalls
from broker.client.master.clash_calls import ClashCalls
from broker.client.master.collection_calls import CollectionCalls
from broker.client.master.member_calls import MemberCalls
from broker.client.master.part_calls import PartCalls
from broker.client.master.segment_calls import SegmentCalls
from broker.client.master.tick_calls import TimeTickCalls
from broker.client.master.time_and_ids import TimeAndIds
from broker.client.net.connection import Connection
from schemas.generated.tidemark import v1


class Master(
    TimeAndIds, MemberCalls, TimeTickCalls, SegmentCalls, CollectionCalls, PartCalls, ClashCalls
):
    """`log.master`. Every call has a deadline and raises what `broker.client.errors` has.

    first = await log.master.alloc_timestamp(10)  # one call
    first = await log.master.timestamps.alloc(10)  # from a batch that is at most a second old
    """

    def __init__(
        self,
        connection: Connection,
        tasks: TaskGroup,
        forget: Callable[[str], None],
        *,
        deadline_s: float,
    ) -> None:
        """`forget` is called with the name of each collection that this client drops."""
        calls = ServiceCalls(connection, "tidemark.v1.Master", deadline_s=deadline_s)
        TimeAndIds.__init__(self, calls, tasks, deadline_s=deadline_s)
        MemberCalls.__init__(self, calls)
        TimeTickCalls.__init__(self, calls, deadline_s=deadline_s)
        SegmentCalls.__init__(self, calls, deadline_s=deadline_s)
        CollectionCalls.__init__(self, calls, forget, deadline_s=deadline_s)
        PartCalls.__init__(self, calls, deadline_s=deadline_s)
        ClashCalls.__init__(self, calls, deadline_s=deadline_s)

    async def get_dd_channel(self) -> str:
        """The channel that carries the changes of collections and partitions, in their order."""
        request = v1.GetDdChannelRequest()
        answer = await self._calls.ask("GetDdChannel", request, v1.GetDdChannelResponse)
        return answer.channel_name
