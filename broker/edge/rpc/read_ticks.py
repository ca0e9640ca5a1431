"""Encode a closed tick once for all idle readers of a pchannel: the bytes are the same for all."""

from broker.model.position import ReadPosition
from schemas.batches import Position, read_response
from schemas.encoding.frames import frame


class ReadTicks:
    """The newest encoded tick, shared by all readers of a server.

    One is enough: the idle readers of a pchannel get a tick one right after the other.
    """

    def __init__(self) -> None:
        self._newest: tuple[tuple[int, Position], bytes] = ((0, Position(0, 0, 0, 0)), b"")

    def framed(self, closed_tick: int, at: ReadPosition) -> bytes:
        """The ReadResponse for a reader at this position, with its framing."""
        # At the end of the log, so that what was purged before it began lies behind it.
        position = Position(at.next_id, at.tick, at.open_id or 0, at.inside)
        told, framed = self._newest
        if told != (closed_tick, position):
            framed = frame(b"".join(read_response((), closed_tick, position)))
            self._newest = (closed_tick, position), framed
        return framed
