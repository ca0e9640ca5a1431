"""Waits until the streaming version of the cluster allows broadcasts."""

import anyio

from broker.coordinator.assignment.messages import NextAssignment
from broker.core.cluster.assignment import BROADCAST_VERSION
from broker.edge.rpc.proxies import Proxy
from broker.model.channel import AssignmentVersion
from broker.model.failure import Refused, StreamingCode


class BroadcastsEnabled:
    """Remembers that it was so: the version never decreases."""

    def __init__(self, assigner: Proxy) -> None:
        self._assigner = assigner
        self._enabled = False

    async def wait(self, within_s: float) -> None:
        """Return once the cluster has a version with broadcasts; Refused if that takes longer."""
        if self._enabled:
            return
        seen: AssignmentVersion | None = None
        with anyio.move_on_after(within_s):
            while not self._enabled:
                table = await self._assigner.ask(NextAssignment(seen))
                # None: no newer table for about a second.
                if table is not None:
                    seen = table.version
                    self._enabled = table.streaming_version >= BROADCAST_VERSION
            return
        raise Refused(
            StreamingCode.INNER,
            f"the cluster is below streaming version {BROADCAST_VERSION}, which broadcasts need;"
            " nothing was recorded. Raise it with `tidemark streaming enable`",
        )
