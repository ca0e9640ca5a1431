"""Report to the coordinator which channels this node serves, in order; no caller waits for it.

A report may be lost: a coordinator that starts asks the nodes, and so does one whose node has a new
session. Clients report a channel that they do not find.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import structlog

from actors import Actor, ActorError, Context, Envelope, Ref
from broker.model.channel import PChannel
from broker.model.failure import Refused
from broker.model.ids import NodeId, PChannelName, Term
from broker.remote.calls import Caller
from broker.remote.remote_coordinator import SERVICE
from schemas.generated.tidemark import v1

REPORT_S = 2.0
TRIES_MAX = 5
PAUSE_S = 0.1
"""Before the second try, then twice as long each time: 1.5 s in all, about what a coordinator needs
to restart. It asks the nodes itself when it has."""

log = structlog.get_logger(__name__)


class ChannelReporter(Actor[v1.ChannelEvent]):
    """Sends one report at a time, with all events since the last one."""

    _context: Context[v1.ChannelEvent]

    def __init__(self, node: NodeId, calls: Caller) -> None:
        self._node = node
        self._calls = calls
        self._reports = self._lost = 0

    async def started(self, context: Context[v1.ChannelEvent]) -> None:
        self._context = context

    async def receive(self, batch: Sequence[Envelope[v1.ChannelEvent]]) -> None:
        """Report the events; drops them after TRIES_MAX failures; see the module."""
        request = v1.ReportChannelsRequest(
            node_id=self._node, events=[envelope.message for envelope in batch]
        )
        for attempt in range(TRIES_MAX):
            if attempt:
                await anyio.sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                await self._calls.call(
                    SERVICE + "ReportChannels",
                    request,
                    v1.ReportChannelsResponse,
                    deadline_s=REPORT_S,
                )
            except Refused as error:
                log.info("channel report not delivered", error=str(error))
                continue
            self._reports += 1
            return
        self._lost += len(batch)

    def statistics(self) -> Mapping[str, int | float | str]:
        return {"reports": self._reports, "lost": self._lost}


class ReportingObserver:
    """A `ChannelObserver` that passes events to the current ChannelReporter."""

    def __init__(self, find: Callable[[str], Ref[Any]], reporter_path: str) -> None:
        self._find = find
        self._path = reporter_path

    def opened(self, node: NodeId, channel: PChannel) -> None:
        """See ChannelObserver."""
        self._tell(v1.ChannelEvent(name=channel.name, term=channel.term, serves=True))

    def closed(self, node: NodeId, name: PChannelName, term: Term, *, reopens: bool) -> None:
        """See ChannelObserver."""
        self._tell(v1.ChannelEvent(name=name, term=term, serves=False, released=not reopens))

    def _tell(self, event: v1.ChannelEvent) -> None:
        try:
            self._find(self._path).tell(event)
        except ActorError:
            pass  # it is restarting; see the module for what finds the change
