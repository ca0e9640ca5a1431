"""Encode a closed tick once for all consumers of a pchannel.

A thousand idle consumers each get five ticks a second, and the bytes are the same for all of them.
The newest encoded tick of each pchannel is kept.
"""

from typing import Final

from broker.model.ids import NodeId, PChannelName
from broker.model.message import ClosedTick
from schemas.encoding.frames import frame
from schemas.wire import consume_time_tick

REMEMBERED_MAX: Final = 4096


class TickFrames:
    """Encoded ticks, shared by all consumers of a server."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self._newest: dict[PChannelName, tuple[ClosedTick, bytes]] = {}

    def framed(self, channel: PChannelName, tick: ClosedTick) -> bytes:
        """The ConsumeResponse with its gRPC framing."""
        newest = self._newest.get(channel)
        # Only the newest is kept: consumers that keep up ask for the same tick within moments.
        if newest is not None and newest[0] == tick:
            return newest[1]
        encoded = frame(
            consume_time_tick(
                tick.id, tick.tick, tick.last_confirmed_id, tick.term, tick.persisted, self._node_id
            )
        )
        if len(self._newest) >= REMEMBERED_MAX:
            self._newest.clear()  # pchannels that moved away are never removed one by one
        self._newest[channel] = (tick, encoded)
        return encoded
