"""What hostile peers do on a connection, each until the server ends it or `ROUNDS` are sent.

Above the connection nothing of them is a call that a server could answer.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from struct import pack
from typing import Any

from hpack import Encoder

from tests.limits.hostile.attack import Got
from tests.wire.raw_peer import HELLO, PREFACE, RawPeer, http_frame

ROUNDS = 40
FRAMES = 1000
HEADERS = [
    *((":method", "POST"), (":scheme", "http"), (":path", "/tidemark.v1.Log/Append")),
    *((":authority", "broker"), ("te", "trailers"), ("content-type", "application/grpc")),
]
OnConnection = Callable[[RawPeer], Coroutine[Any, Any, None]]


async def _again(peer: RawPeer, frames: bytes, first: bytes = HELLO) -> None:
    await peer.send(first)
    for _ in range(ROUNDS):
        await peer.send(frames)


async def settings_flood(peer: RawPeer) -> None:
    await _again(peer, http_frame(4, b"") * FRAMES)


async def many_settings(peer: RawPeer) -> None:
    numbers = b"".join(pack(">HI", code, 1) for code in range(100, 30_100))
    await _again(peer, http_frame(4, numbers))


async def ping_flood(peer: RawPeer) -> None:
    await _again(peer, http_frame(6, b"8 bytes.") * FRAMES)


async def window_updates(peer: RawPeer) -> None:
    await _again(peer, http_frame(8, pack(">I", 1)) * FRAMES)


async def priorities(peer: RawPeer) -> None:
    await _again(peer, http_frame(2, b"\0\0\0\0\1", 0, 3) * FRAMES)


async def unknown_frames(peer: RawPeer) -> None:
    await _again(peer, http_frame(0xBE, b"") * FRAMES)


async def rapid_reset(peer: RawPeer) -> None:
    encoder = Encoder()
    await peer.send(HELLO)
    for start in range(1, 200 * ROUNDS, 200):
        calls = b""
        for number in range(start, start + 200, 2):
            calls += http_frame(1, encoder.encode(HEADERS), 4, number)
            calls += http_frame(3, pack(">I", 8), 0, number)
        await peer.send(calls)


async def continuations(peer: RawPeer) -> None:
    await _again(peer, http_frame(9, b"", 0, 1) * FRAMES, HELLO + http_frame(1, b"\x82", 0, 1))


async def header_bomb(peer: RawPeer) -> None:
    """Headers of 12 bytes that are 15 KiB when they are decoded."""
    encoder = Encoder()
    long = [*HEADERS, *[("x-long", "a" * 3000)] * 5]
    await peer.send(HELLO + http_frame(1, encoder.encode(long), 4, 1))
    for start in range(3, 200 * ROUNDS, 200):
        block = encoder.encode(long)
        await peer.send(
            b"".join(http_frame(1, block, 4, number) for number in range(start, start + 200, 2))
        )


async def too_many_headers(peer: RawPeer) -> None:
    """64 KiB when they are decoded."""
    encoder = Encoder()
    long = [*HEADERS, *[("x-long", "a" * 3000)] * 22]
    await _again(peer, http_frame(1, encoder.encode(long), 4, 1))


async def no_window(peer: RawPeer) -> None:
    """Opens calls and takes no answers."""
    encoder = Encoder()
    await peer.send(PREFACE + http_frame(4, pack(">HI", 4, 0)))
    health = [
        it if it[0] != ":path" else (":path", "/grpc.health.v1.Health/Watch") for it in HEADERS
    ]
    for number in range(1, 1000, 2):
        call = http_frame(1, encoder.encode(health), 4, number)
        await peer.send(call + http_frame(0, bytes(5), 1, number))


async def large_table(peer: RawPeer) -> None:
    """Allows a header table of 4 GiB, to have it filled with causes of refusals."""
    encoder = Encoder()
    await peer.send(PREFACE + http_frame(4, pack(">HI", 1, (1 << 32) - 1)))
    for start in range(1, 20 * ROUNDS, 20):
        calls = b""
        for number in range(start, start + 20, 2):
            named = [*HEADERS, ("cluster", f"{number}" + "x" * 1000)]
            calls += http_frame(1, encoder.encode(named), 5, number)
        await peer.send(calls)


async def huge_message(peer: RawPeer) -> None:
    """Announces 4 GiB."""
    call = http_frame(1, Encoder().encode(HEADERS), 4, 1)
    await _again(peer, b"", HELLO + call + http_frame(0, b"\x00\xff\xff\xff\xff", 0, 1))


async def deep_message(peer: RawPeer) -> None:
    """A request of messages in messages, thousands deep."""
    nested = b""
    for _ in range(6000):
        nested = (b"\x0a" + _varint(len(nested)) + nested)[-16_000:]
    path = "/tidemark.v1.Collections/Create"
    headers = [it if it[0] != ":path" else (":path", path) for it in HEADERS]
    body = pack(">BI", 0, len(nested)) + nested
    call = http_frame(1, Encoder().encode(headers), 4, 1)
    await _again(peer, b"", HELLO + call + http_frame(0, body, 1, 1))


async def half_a_preface(peer: RawPeer) -> None:
    await peer.send(PREFACE[:10])


async def half_a_header(peer: RawPeer) -> None:
    await peer.send(HELLO + http_frame(1, b"\x82", 0, 1))


async def half_a_frame(peer: RawPeer) -> None:
    """A byte now and then."""
    await peer.send(HELLO + http_frame(6, b"8 bytes.")[:5])


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


FLOODS: tuple[OnConnection, ...] = (
    *(settings_flood, ping_flood, window_updates, priorities, unknown_frames, rapid_reset),
    *(header_bomb, no_window, large_table, huge_message, deep_message),
)
"""The server stays connected, and does little for them."""
CLOSED: tuple[OnConnection, ...] = (
    *(many_settings, continuations, too_many_headers),
    *(half_a_preface, half_a_header, half_a_frame),
)
"""The server closes the connection."""


async def watch(peer: RawPeer, got: Got) -> None:
    """Count the kinds of frames that come, and the end of the connection."""
    names = {1: "answers", 3: "RST_STREAM", 4: "SETTINGS", 6: "PING", 7: "GOAWAY"}
    with suppress(OSError, EOFError):
        while True:
            head = await peer.reader.readexactly(9)
            await peer.reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] in names:
                got[names[head[3]]] += 1
    got["closed"] += 1
