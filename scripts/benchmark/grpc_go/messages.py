"""What a Go program puts into frames: HTTP/2 frames, header blocks, and messages with Go's maps.

Go walks a map from a random one of eight places, so four properties come in one of four orders,
five times of eight in the order in which they were put.
"""

from collections.abc import Iterable, Sequence
from random import Random
from struct import pack
from typing import Final

from benchmark.grpc_go.header_fields import HeaderEncoder
from schemas.encoding.varint import varint

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK, END_STREAM, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
FRAME_BYTES_MAX = 16_384
USER_AGENT = "grpc-go/1.71.0"
_MAP_PLACES = 8

Properties = Sequence[tuple[bytes, bytes]]


def http_frame(kind: int, payload: bytes, flags: int = 0, stream: int = 0) -> bytes:
    """One HTTP/2 frame."""
    return pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def window_update(stream: int, increment: int) -> bytes:
    """Opens the window of a stream, or of the connection (0)."""
    return http_frame(WINDOW_UPDATE, pack(">I", increment), stream=stream)


def initial_window(size: int) -> bytes:
    """SETTINGS with a new initial window of the streams."""
    return http_frame(SETTINGS, pack(">HI", INITIAL_WINDOW_SIZE, size))


def header_block(
    encoder: HeaderEncoder, path: str, authority: str, metadata: Iterable[tuple[str, str]]
) -> bytes:
    """The headers of a call, in grpc-go's order."""
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("user-agent", USER_AGENT),
        ("te", "trailers"),
        *metadata,
    ]
    return b"".join([encoder.field(name.encode(), value.encode()) for name, value in fields])


class ProduceRequests:
    """Encodes ProduceRequests of one payload, as Go's protobuf does."""

    def __init__(self, payload: bytes, properties: Properties, random: Random) -> None:
        turns = [[*properties[at:], *properties[:at]] for at in range(len(properties))]
        bodies = [_field(2, _message(payload, turn)) for turn in turns]
        self._bodies = [bodies[at] if at < len(bodies) else bodies[0] for at in range(_MAP_PLACES)]
        self._random = random

    def request(self, request_id: int) -> bytes:
        """The request with this id."""
        numbered = b"\x08" + varint(request_id) + self._random.choice(self._bodies)
        return _field(1, numbered)


def _message(payload: bytes, properties: Properties) -> bytes:
    entries = [_field(2, _field(1, name) + _field(2, value)) for name, value in properties]
    return _field(1, payload) + b"".join(entries)


def _field(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + varint(len(value)) + value
