"""gRPC's framing within an HTTP/2 stream: one flag byte, four length bytes, then the message."""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from schemas.encoding.oversize import FrameTooLarge, Oversize
from schemas.encoding.varint import Malformed

HEAD_BYTES: Final = 5
SHOWN_BYTES: Final = 32
"""Of an Oversize: enough to see which request it is."""
_HEAD: Final = Struct(">BI")


def frame(message: bytes) -> bytes:
    """One uncompressed message, framed."""
    return _HEAD.pack(0, len(message)) + message


def frame_head(length: int) -> bytes:
    """What stands in front of an uncompressed message of `length` bytes."""
    return _HEAD.pack(0, length)


def frames(messages: Iterable[bytes]) -> bytes:
    """Many uncompressed messages, framed one after the other, for one write."""
    pack = _HEAD.pack
    parts: list[bytes] = []
    for message in messages:
        parts += (pack(0, len(message)), message)
    return b"".join(parts)


class FrameSplitter:
    """Cuts a stream of bytes into messages; keeps at most one unfinished frame.

    A frame over `limit_bytes` is an error, unless it is within `passed_over_bytes_max`: then its
    first `SHOWN_BYTES` come out as an Oversize, and the rest is dropped as it arrives.
    After an error the position in the stream is lost: discard the splitter.
    """

    __slots__ = ("_acceptable_bytes", "_chunks", "_drop", "_needed", "limit_bytes", "pending")

    def __init__(self, limit_bytes: int, *, passed_over_bytes_max: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.pending = 0
        """Bytes that came of a frame that is not complete."""
        self._acceptable_bytes = max(limit_bytes, passed_over_bytes_max)
        self._chunks: list[bytes] = []
        self._needed = HEAD_BYTES
        self._drop = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes, in order.

        Raises FrameTooLarge as soon as a length that is too large is seen, and Malformed for a
        compressed message; messages that were complete before it are lost with the stream.
        """
        if self._drop:
            data = self._dropped(data)
            if self._drop:
                return []
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
            length = self._length(data, position)
            oversize = length > self.limit_bytes
            needed = HEAD_BYTES + (min(length, SHOWN_BYTES) if oversize else length)
            # An oversize is reported once enough of it is here to see its request id.
            if end - position < needed:
                break
            if oversize:
                messages.append(Oversize(data[position + HEAD_BYTES : position + needed], length))
                self._keep(b"", HEAD_BYTES)
                # `pending` stays above 0 until the rest has come: a peer that stops is stalled.
                self._drop, self.pending = HEAD_BYTES + length - needed, needed
                return messages + self.feed(data[position + needed :])
            messages.append(data[position + HEAD_BYTES : position + needed])
            position += needed
            needed = HEAD_BYTES
        self._keep(data[position:], needed)
        return messages

    def _dropped(self, data: bytes) -> bytes:
        """What is left of `data` behind the frame that is passed over."""
        dropped = min(len(data), self._drop)
        self._drop -= dropped
        self.pending = self.pending + dropped if self._drop else 0
        return data[dropped:]

    def _length(self, data: bytes, position: int) -> int:
        compressed: int
        length: int
        compressed, length = _HEAD.unpack_from(data, position)
        # Compression is not supported: the scanners read messages as they come.
        if compressed:
            raise Malformed(f"a frame with compression flag {compressed}", position)
        if length > self._acceptable_bytes:
            raise FrameTooLarge(self.limit_bytes, length)
        return length

    def _keep(self, rest: bytes, needed: int) -> None:
        self._chunks = [rest] if rest else []
        self.pending = len(rest)
        self._needed = needed
