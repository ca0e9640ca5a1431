"""Gives each incarnation of an Appender its term, which is durable before the Appender starts.

The first incarnation takes the assigned term, each restart acquires the next one.
"""

from broker.model.channel import PChannel
from broker.model.failure import Refused, StreamingCode
from broker.node.state.channel_events import ChannelFailed
from broker.node.state.node_runtime import NodeRuntime


class ChannelTerms:
    """A `TermSource` for one assignment of a pchannel to this node.

    `used`: an earlier Appender had the assigned term, so the first one here takes the next.
    """

    def __init__(self, assigned: PChannel, node: NodeRuntime, *, used: bool = False) -> None:
        self._assigned = assigned
        self._name = assigned.name
        self._newest = assigned.term
        self._node = node
        self._claimed = used

    async def next_term(self, path: str) -> int:
        """The assigned term, then newer ones. Raises Refused when storage or metadata refuse."""
        # Before the term: a full disk must not burn one term for each retry.
        if why := await self._node.wal.why_unwritable(self._name):
            cause = f"{self._name}: the storage takes no writes: {why}; retrying"
            raise self._failed(Refused(StreamingCode.ON_SHUTDOWN, cause), final=False)
        try:
            await self._take_next()
        except Refused as error:
            # The coordinator has a newer assignment: retrying here would take the channel back.
            overtaken = error.refusal.code is StreamingCode.IGNORED_OPERATION
            raise self._failed(error, final=overtaken) from error
        return self._newest

    async def _take_next(self) -> None:
        if self._claimed:
            self._newest = await self._node.terms.acquire(self._name, self._newest)
        else:
            await self._node.terms.claim(self._assigned)
            self._claimed = True  # only now: a claim that failed is retried at the same term

    def _failed(self, error: Refused, *, final: bool) -> Refused:
        event = ChannelFailed(self._name, self._newest, error.refusal, final)
        self._node.open_channels.report(event)
        return error
