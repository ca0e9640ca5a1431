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


def sole_message(data: bytes) -> bytes | None:
    """The message when `data` is one uncompressed frame and nothing else."""
    if len(data) < HEAD_BYTES:
        return None
    compressed: int
    length: int
    compressed, length = _HEAD.unpack_from(data)
    return None if compressed or length != len(data) - HEAD_BYTES else data[HEAD_BYTES:]


class FrameSplitter:
    """Cuts a stream of bytes into messages; keeps at most one unfinished frame.

    A frame over `limit_bytes` is an error, unless it is within `passed_over_bytes_max`: then its
    first `SHOWN_BYTES` come out as an Oversize, and the rest is dropped as it arrives.
    After an error the position in the stream is lost: discard the splitter.
    """

    __slots__ = (
        "_acceptable_bytes", "_chunks", "_drop", "_length", "_needed", "limit_bytes", "pending",
    )  # fmt: skip

    def __init__(self, limit_bytes: int, *, passed_over_bytes_max: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.pending = 0
        """Bytes that came of a frame that is not complete."""
        self._acceptable_bytes = max(limit_bytes, passed_over_bytes_max)
        self._chunks: list[bytes] = []
        """What came of the unfinished frame: of its message once its head is known."""
        self._length = 0
        self._needed = HEAD_BYTES
        self._drop = 0

    @property
    def announced(self) -> int:
        """The length of the unfinished message, which is to be kept; 0 while it is not known."""
        is_kept = self._needed > HEAD_BYTES and self._length <= self.limit_bytes
        return self._length if self.pending and is_kept else 0

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes, in order.

        Raises FrameTooLarge as soon as a length that is too large is seen, and Malformed for a
        compressed message; messages that were complete before it are lost with the stream.
        """
        if self._drop:
            data = self._dropped(data)
            if self._drop:
                return []
        messages: list[bytes] = []
        position, end = 0, len(data)
        if self.pending:
            self.pending += end
            if self.pending < self._needed:
                self._chunks.append(data)
                return []
            if self._needed == HEAD_BYTES:  # the head was cut, which is rare
                data = b"".join((*self._chunks, data))
                end = len(data)
            else:
                position = end - (self.pending - self._needed)
                # The only copy of a message that came in many pieces.
                message = b"".join((*self._chunks, data[:position]))
                if self._length > self.limit_bytes:
                    return self._pass_over(message, data[position:], messages)
                messages.append(message)
        needed = HEAD_BYTES
        while end - position >= HEAD_BYTES:
            self._length = self._length_at(data, position)
            oversize = self._length > self.limit_bytes
            # An oversize is reported once enough of it is here to see its request id.
            needed = HEAD_BYTES + (min(self._length, SHOWN_BYTES) if oversize else self._length)
            if end - position < needed:
                break
            message, rest = data[position + HEAD_BYTES : position + needed], position + needed
            if oversize:
                return self._pass_over(message, data[rest:], messages)
            messages.append(message)
            position = rest
            needed = HEAD_BYTES
        self._keep(data, position, needed)
        return messages

    def _pass_over(self, beginning: bytes, rest: bytes, messages: list[bytes]) -> list[bytes]:
        """Report an oversize of which enough is here, and drop what is still to come of it."""
        messages.append(Oversize(beginning, self._length))
        self._chunks = []
        # `pending` stays above 0 until the rest has come: a peer that stops is stalled.
        self._drop = self._length - len(beginning)
        self.pending = HEAD_BYTES + len(beginning) if self._drop else 0
        return messages + self.feed(rest)

    def _dropped(self, data: bytes) -> bytes:
        """What is left of `data` behind the frame that is passed over."""
        dropped = min(len(data), self._drop)
        self._drop -= dropped
        self.pending = self.pending + dropped if self._drop else 0
        return data[dropped:]

    def _length_at(self, data: bytes, position: int) -> int:
        compressed: int
        length: int
        compressed, length = _HEAD.unpack_from(data, position)
        # Compression is not supported: the scanners read messages as they come.
        if compressed:
            raise Malformed(f"a frame with compression flag {compressed}", position)
        if length > self._acceptable_bytes:
            raise FrameTooLarge(self.limit_bytes, length)
        return length

    def _keep(self, data: bytes, position: int, needed: int) -> None:
        self.pending, self._needed = len(data) - position, needed
        start = position if needed == HEAD_BYTES else position + HEAD_BYTES
        self._chunks = [data[start:]] if self.pending else []
