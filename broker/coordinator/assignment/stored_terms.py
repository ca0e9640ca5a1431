"""Terms in the metadata store: the newest term of a pchannel is in its record.

Nobody may act at a term before it is durable.
"""

from collections.abc import Callable
from dataclasses import replace

from broker.coordinator.assignment.channel_records import ChannelRecords
from broker.core.cluster.assignment import PChannelMeta, taken
from broker.model.channel import PChannel
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId, PChannelName, Term
from broker.ports.meta import MetaError, MetaStore

Transition = Callable[[PChannelMeta], PChannelMeta]


class StoredTerms:
    """Terms (`broker/ports/terms.py`) for one node.

    Bound to the node, so that an earlier owner cannot take a channel back by restarting it.
    """

    def __init__(self, store: MetaStore, node: NodeId) -> None:
        self._records = ChannelRecords(store)
        self._node = node

    async def acquire(self, channel: PChannelName, after: Term) -> Term:
        """See Terms."""

        def next_term(meta: PChannelMeta) -> PChannelMeta:
            self._check_owner(meta)
            if meta.term > after:
                raise Refused(
                    StreamingCode.IGNORED_OPERATION,
                    f"{meta.name}: term {meta.term} was assigned since term {after}",
                )
            return taken(meta, self._node, Term(meta.term + 1))

        return await self._change(channel, next_term)

    async def claim(self, channel: PChannel) -> None:
        """See Terms."""
        term = channel.term

        def claimed(meta: PChannelMeta) -> PChannelMeta:
            if term == meta.term:
                return meta  # the coordinator recorded it when it assigned the channel
            if term < meta.term:
                raise Refused(
                    StreamingCode.IGNORED_OPERATION,
                    f"{channel.name}: term {term} is older than term {meta.term}",
                )
            return replace(taken(meta, self._node, term), access=channel.access)

        await self._change(channel.name, claimed)

    async def _change(self, channel: PChannelName, transition: Transition) -> Term:
        try:
            recorded = await self._records.change(channel, transition)
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error
        return recorded.meta.term

    def _check_owner(self, meta: PChannelMeta) -> None:
        if meta.node not in (None, self._node):
            raise Refused(
                StreamingCode.IGNORED_OPERATION,
                f"{meta.name}: node {meta.node} owns it since term {meta.term}, "
                f"not node {self._node}",
            )
