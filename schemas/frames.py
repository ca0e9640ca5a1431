"""gRPC's framing inside an HTTP/2 stream: one flag byte, four length bytes, then the message.

Never looks into a message. Next: schemas/wire.py
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from schemas.varint import Malformed

HEAD_BYTES: Final = 5
_HEAD: Final = Struct(">BI")


class FrameTooLarge(ValueError):
    """A frame announces `length` bytes where `limit` are allowed; nothing was allocated for it."""

    def __init__(self, limit: int, length: int) -> None:
        super().__init__(f"a frame of {length} bytes, where at most {limit} are allowed")
        self.limit = limit
        self.length = length


def frame(message: bytes) -> bytes:
    """One uncompressed message, framed."""
    return _HEAD.pack(0, len(message)) + message


def frames(messages: Iterable[bytes]) -> bytes:
    """Many uncompressed messages, framed one after the other, for one write."""
    pack = _HEAD.pack
    parts: list[bytes] = []
    for message in messages:
        parts += (pack(0, len(message)), message)
    return b"".join(parts)


class FrameSplitter:
    """Cuts a stream of bytes into messages; keeps at most one unfinished frame.

    After an error the stream has lost its place: throw the splitter away.
    """

    __slots__ = ("_chunks", "_needed", "limit_bytes", "pending")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.pending = 0
        """Bytes held of a frame that is not complete."""
        self._chunks: list[bytes] = []
        self._needed = HEAD_BYTES

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes, in order.

        Raises FrameTooLarge as soon as a length over the limit is seen, and Malformed for a
        compressed message; messages that were complete before it are lost with the stream.
        """
        if self._chunks:
            self._chunks.append(data)
            self.pending += len(data)
            if self.pending < self._needed:
                return []
            # Joined once per frame or head, not once per chunk: large frames stay linear.
            data = b"".join(self._chunks)
        messages: list[bytes] = []
        position, end = 0, len(data)
        needed = HEAD_BYTES
        while end - position >= HEAD_BYTES:
            needed = HEAD_BYTES + self._length(data, position)
            if end - position < needed:
                break
            messages.append(data[position + HEAD_BYTES : position + needed])
            position += needed
            needed = HEAD_BYTES
        self._keep(data[position:], needed)
        return messages

    def _length(self, data: bytes, position: int) -> int:
        compressed: int
        length: int
        compressed, length = _HEAD.unpack_from(data, position)
        if compressed:
            raise Malformed(f"a frame with compression flag {compressed}", position)
        if length > self.limit_bytes:
            raise FrameTooLarge(self.limit_bytes, length)
        return length

    def _keep(self, rest: bytes, needed: int) -> None:
        self._chunks = [rest] if rest else []
        self.pending = len(rest)
        self._needed = needed
