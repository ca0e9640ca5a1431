"""Pauses and resumes consumption in the whole cluster: one record, and a call to every node.

Nodes that join later, or were not reached, learn it with their lease.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

import anyio
import structlog

from actors import Actor, Backoff, Context, Envelope
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import (
    ConsumptionMessage,
    PauseConsumers,
    ReadPause,
)
from broker.coordinator.records import PAUSE_KEY, decode_number, encode_number
from broker.coordinator.retries import Retries
from broker.core.cluster.actor_kinds import PAUSED
from broker.model.failure import Refused, StreamingCode
from broker.ports.meta import MetaError, MetaStore, WriteUnconfirmed
from broker.ports.nodes import NodeControl

TELL_S = 2.0
READ_S = 5.0
"""How long one read may hold up requests when it is not known what is recorded."""
READ_AGAIN = Backoff(first_s=0.5, max_s=5.0)

log = structlog.get_logger(__name__)


async def consumption_paused(store: MetaStore) -> bool:
    """The recorded state. MetaError."""
    return (await _recorded(store))[0]


class Consumption(Actor[ConsumptionMessage]):
    """See the module. `from_start`: begin paused, whatever is recorded."""

    _context: Context[ConsumptionMessage]

    def __init__(self, store: MetaStore, nodes: LiveNodes, *, from_start: bool) -> None:
        self._store = store
        self._nodes = nodes
        self._from_start = from_start
        self._reads = Retries(READ_AGAIN, "consumption record not read again yet")
        self._timer_set = False

    async def started(self, context: Context[ConsumptionMessage]) -> None:
        """A restarted incarnation keeps the state of this process."""
        self._context = context
        if self._nodes.consumption_paused is None:
            recorded, self._nodes.pause_revision = await _recorded(self._store)
            self._nodes.consumption_paused = recorded or self._from_start
        else:
            # A write of the former incarnation may have been stored. By a message: those behind
            # this actor need not wait for the store.
            self._read_after(0.0)

    async def receive(self, batch: Sequence[Envelope[ConsumptionMessage]]) -> None:
        for envelope in batch:
            match envelope.message:
                case PauseConsumers(paused):
                    await self._record(envelope, paused=paused)
                case ReadPause():
                    self._timer_set = False
                    await self._read()
                case message:
                    assert_never(message)

    def statistics(self) -> Mapping[str, int | float | str]:
        return {PAUSED: int(bool(self._nodes.consumption_paused))}

    async def _record(self, envelope: Envelope[ConsumptionMessage], *, paused: bool) -> None:
        """Store it, then notify the nodes; one that is not reached learns it with its lease."""
        try:
            revision = await self._store.write({PAUSE_KEY: encode_number(int(paused))})
        except WriteUnconfirmed as error:
            asked = "pause" if paused else "resume"
            cause = f"{error}: see `tidemark health`, and {asked} again if it has not changed"
            envelope.fail(Refused(StreamingCode.UNKNOWN, cause))
            await self._read()
        except MetaError as error:
            envelope.fail(Refused(StreamingCode.INNER, str(error)))
        else:
            await self._take(revision, paused=paused)
            envelope.reply(None)

    async def _read(self) -> None:
        """Take over what is recorded, now or when the store answers again."""
        # In place: a restart of this actor would restart everything behind it.
        try:
            with anyio.fail_after(READ_S):
                paused, revision = await _recorded(self._store)
        except (MetaError, TimeoutError) as error:
            self._reads.failed(str(error) or f"no answer within {READ_S} s")
            self._read_after(self._reads.pause_s(self._context.random))
            return
        self._reads.succeeded()
        if revision != self._nodes.pause_revision:
            await self._take(revision, paused=paused)

    def _read_after(self, delay_s: float) -> None:
        if not self._timer_set:
            self._timer_set = True
            self._context.after(delay_s, ReadPause())

    async def _take(self, revision: int, *, paused: bool) -> None:
        # Before the calls: a lease renewed meanwhile must carry the new state.
        self._nodes.consumption_paused, self._nodes.pause_revision = paused, revision
        log.warning("consumption paused" if paused else "consumption resumed")
        await self._tell(paused=paused)

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


async def _recorded(store: MetaStore) -> tuple[bool, int]:
    """Whether it is paused, and the revision of the record; 0: there is none."""
    entry = await store.get(PAUSE_KEY)
    if entry is None:
        return False, 0
    return decode_number(PAUSE_KEY, entry.value) != 0, entry.revision
