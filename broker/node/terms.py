"""Where an Appender's term comes from: durable before the Appender exists.

The first incarnation takes the term it was assigned; each later one acquires the next. It asks the
storage first, so that a full disk does not burn terms.
Next: broker/node/appender.py
"""

from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName, Term
from broker.node.messages import ChannelFailed
from broker.node.parts import NodeParts


class ChannelTerms:
    """A `TermSource` for one assignment of one pchannel to this node."""

    def __init__(self, name: PChannelName, assigned: Term, parts: NodeParts) -> None:
        self._name = name
        self._assigned = assigned
        self._parts = parts
        self._claimed = False

    async def next_term(self, path: str) -> int:
        """The assigned term, then newer ones; raises when the storage or the store refuse."""
        if not await self._parts.wal.writable():
            cause = f"{self._name}: the storage takes no writes; trying again"
            raise self._failed(Refused(StreamingCode.ON_SHUTDOWN, cause), final=False)
        try:
            return await self._next()
        except Refused as error:
            overtaken = error.refusal.code is StreamingCode.IGNORED_OPERATION
            raise self._failed(error, final=overtaken) from error

    async def _next(self) -> Term:
        if self._claimed:
            return await self._parts.terms.acquire(self._name)
        await self._parts.terms.claim(self._name, self._assigned)
        self._claimed = True
        return self._assigned

    def _failed(self, error: Refused, *, final: bool) -> Refused:
        event = ChannelFailed(self._name, self._assigned, error.refusal, final)
        self._parts.open_channels.report(event)
        return error
