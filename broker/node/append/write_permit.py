"""Time ticks for one Appender, given out only while this node may write."""

from actors import Clock
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.node.state.node_runtime import NodeRuntime


class WritePermit:
    """Bound to the node's session in which the channel was assigned: a later one revokes it.

    Between two sessions the coordinator may have assigned the channel to another node.
    """

    def __init__(self, name: PChannelName, node: NodeRuntime, clock: Clock, session: int) -> None:
        self._name = name
        self._node = node
        self._clock = clock
        # Assigned before the first session: the writer takes the one in which it opens at last.
        self._session = session or node.write_lease.session

    async def take(self, count: int, above: TimeTick) -> TimeTick:
        """The first of `count` ticks above `above`; Refused(ON_SHUTDOWN) without a write lease.

        The caller must place the ticks before its next await: the lease was checked for now.
        """
        tick = await self._node.ticks.take(count, self._clock.monotonic_s(), above)
        # After the await, which may have lasted longer than the lease.
        if not self._node.write_lease.holds(self._session, self._clock.monotonic_s()):
            raise Refused(
                StreamingCode.ON_SHUTDOWN,
                f"{self._name}: node {self._node.node_id} holds no write lease of the coordinator;"
                " nothing was stored, retry",
            )
        return tick
