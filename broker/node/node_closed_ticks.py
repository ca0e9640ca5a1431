"""The closed ticks of this node's pchannels, for the cluster's time synchronisation.

A pchannel that does not serve here is left out.
"""

from collections.abc import Callable, Mapping, Sequence

from actors import ActorError, Ref
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.node.directory_messages import DirectoryMessage, ShowClosedTicks

DEADLINE_S = 2.0


class LocalClosedTicks:
    """A `ClosedTicks`. `directory` gives the current incarnation of the node's Directory."""

    def __init__(
        self, names: Sequence[PChannelName], directory: Callable[[], Ref[DirectoryMessage]]
    ) -> None:
        self._question = ShowClosedTicks(tuple(names))
        self._directory = directory

    async def closed_ticks(self) -> Mapping[PChannelName, TimeTick]:
        try:
            return await self._directory().ask(self._question, deadline_s=DEADLINE_S)
        except ActorError as error:
            raise Refused(
                StreamingCode.INNER, f"the node does not report closed ticks: {error}"
            ) from error
