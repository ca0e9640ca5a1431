"""Tells the coordinator which channels this node serves, in order, without anybody waiting for it.

Owns the few events that are on their way. What gets lost here is found by the coordinator's own
looks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from actors import Actor, ActorError, Context, Envelope, Ref
from broker.model.channel import PChannel
from broker.model.failure import Refused
from broker.model.ids import NodeId, PChannelName, Term
from broker.remote.calls import Calls
from broker.remote.remote_coordinator import SERVICE
from schemas.generated.tidemark import v1

REPORT_S = 2.0
TRIES_MAX = 3

log = structlog.get_logger(__name__)

NewsMessage = v1.ChannelEvent


class News(Actor[NewsMessage]):
    """One report at a time, with all that has happened since the last one."""

    _context: Context[NewsMessage]

    def __init__(self, node: NodeId, calls: Calls) -> None:
        self._node = node
        self._calls = calls
        self._reports = self._lost = 0

    async def started(self, context: Context[NewsMessage]) -> None:
        self._context = context

    async def receive(self, batch: Sequence[Envelope[NewsMessage]]) -> None:
        """Tried a few times: after that the coordinator has better ways to find out."""
        request = v1.ReportChannelsRequest(
            node_id=self._node, events=[envelope.message for envelope in batch]
        )
        for _ in range(TRIES_MAX):
            try:
                await self._calls.call(
                    SERVICE + "ReportChannels",
                    request,
                    v1.ReportChannelsResponse,
                    deadline_s=REPORT_S,
                )
            except Refused as error:
                log.info("news not delivered", error=str(error))
                continue
            self._reports += 1
            return
        self._lost += len(batch)

    def statistics(self) -> Mapping[str, int | float | str]:
        return {"reports": self._reports, "lost": self._lost}


class SentNews:
    """A `ChannelObserver` that leaves the sending to News, found anew each time."""

    def __init__(self, find: Callable[[str], Ref[Any]], news_path: str) -> None:
        self._find = find
        self._path = news_path

    def opened(self, node: NodeId, channel: PChannel) -> None:
        """See ChannelObserver."""
        self._tell(v1.ChannelEvent(name=channel.name, term=channel.term, serves=True))

    def closed(self, node: NodeId, name: PChannelName, term: Term) -> None:
        """See ChannelObserver."""
        self._tell(v1.ChannelEvent(name=name, term=term, serves=False))

    def _tell(self, event: v1.ChannelEvent) -> None:
        try:
            self._find(self._path).tell(event)
        except ActorError:
            pass
