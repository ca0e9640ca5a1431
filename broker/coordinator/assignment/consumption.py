"""Pauses and resumes consumption in the whole cluster: one record, and a call to every node.

Nodes that join later, or were not reached, learn it with their lease.
"""

from collections.abc import Mapping, Sequence

import anyio
import structlog

from actors import Actor, Context, Envelope
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import ConsumptionMessage
from broker.coordinator.records import PAUSE_KEY, decode_number, encode_number
from broker.core.cluster.actor_kinds import PAUSED
from broker.model.failure import Refused, StreamingCode
from broker.ports.meta import MetaError, MetaStore
from broker.ports.nodes import NodeControl

TELL_S = 2.0

log = structlog.get_logger(__name__)


async def consumption_paused(store: MetaStore) -> bool:
    """The recorded state. MetaError."""
    entry = await store.get(PAUSE_KEY)
    return entry is not None and decode_number(PAUSE_KEY, entry.value) != 0


class Consumption(Actor[ConsumptionMessage]):
    """See the module. `from_start`: begin paused, whatever is recorded."""

    def __init__(self, store: MetaStore, nodes: LiveNodes, *, from_start: bool) -> None:
        self._store = store
        self._nodes = nodes
        self._from_start = from_start

    async def started(self, context: Context[ConsumptionMessage]) -> None:
        """A restarted incarnation keeps the state of this process."""
        if self._nodes.consumption_paused is None:
            recorded = await consumption_paused(self._store)
            self._nodes.consumption_paused = recorded or self._from_start

    async def receive(self, batch: Sequence[Envelope[ConsumptionMessage]]) -> None:
        """Store it, then notify the nodes; one that is not reached learns it with its lease."""
        for envelope in batch:
            paused = envelope.message.paused
            try:
                await self._store.write({PAUSE_KEY: encode_number(int(paused))})
            except MetaError as error:
                envelope.fail(Refused(StreamingCode.INNER, str(error)))
                continue
            # Before the calls: a lease renewed meanwhile must carry the new state.
            self._nodes.consumption_paused = paused
            log.warning("consumption paused" if paused else "consumption resumed")
            await self._tell(paused=paused)
            envelope.reply(None)

    def statistics(self) -> Mapping[str, int | float | str]:
        return {PAUSED: int(bool(self._nodes.consumption_paused))}

    async def _tell(self, *, paused: bool) -> None:
        async def tell(node: NodeControl) -> None:
            try:
                await node.pause_consumption(paused=paused)
            except Refused as error:
                log.info(
                    "node not notified; its lease will tell",
                    node=node.node_id,
                    error=str(error),
                )

        with anyio.move_on_after(TELL_S):
            async with anyio.create_task_group() as telling:
                for node in self._nodes.all():
                    telling.start_soon(tell, node)
