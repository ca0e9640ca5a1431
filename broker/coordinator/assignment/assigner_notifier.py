"""Notifies the assigner of channels that this process's node opens and closes; never blocks."""

from collections.abc import Callable
from typing import Any

from actors import ActorError, Ref
from broker.coordinator.assignment.messages import ChannelClosed, NodeOpenedChannel
from broker.model.channel import PChannel
from broker.model.ids import NodeId, PChannelName, Term


class AssignerNotifier:
    """ChannelObserver (`broker/ports/nodes.py`) that notifies the assigner, if it is running.

    A notification that is lost while it restarts is recovered from the record and from the node.
    """

    def __init__(self, find: Callable[[str], Ref[Any]], assigner_path: str) -> None:
        self._find = find
        self._path = assigner_path

    def opened(self, node: NodeId, channel: PChannel) -> None:
        """See ChannelObserver."""
        self._tell(NodeOpenedChannel(node, channel.name, channel.term))

    def closed(self, node: NodeId, name: PChannelName, term: Term, *, reopens: bool) -> None:
        """See ChannelObserver."""
        self._tell(ChannelClosed(node, name, term, reopens))

    def _tell(self, news: NodeOpenedChannel | ChannelClosed) -> None:
        try:
            self._find(self._path).tell(news)
        except ActorError:
            pass
