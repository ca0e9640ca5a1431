"""Requests that are expensive to decode: many fields, deep nesting, lengths of nothing."""

from collections.abc import Iterator
from itertools import count, cycle
from struct import pack

from schemas.encoding.base64_text import base64_text
from schemas.encoding.fields import field
from schemas.encoding.frames import frame
from schemas.encoding.varint import varint
from schemas.wire import message, produce_request
from tests.limits.hostile.attack import Got, Target
from tests.limits.hostile.hostile_caller import Headers, HostileCall, call_on
from tests.limits.hostile.hostile_streams import append_batches, produce

MIB = 1 << 20
HEALTH = "/grpc.health.v1.Health/Check"
COMMIT_CURSOR = "/tidemark.v1.TimeSync/CommitCursor"
DESCRIBE = "/tidemark.v1.Log/Describe"
FLUSHES = "/tidemark.v1.Master/AcknowledgeFlushes"
CREATE = "/tidemark.v1.Collections/Create"
BROADCAST = "/milvus.proto.streaming.StreamingCoordBroadcastService/Broadcast"
BODY_BYTES_MAX = 15 * MIB
"""Just within the limit of a frame."""
UNFINISHED = 64
BODY_BYTES = 4 * MIB
"""A quarter of what a request may have; a larger one takes an attacker longer to send."""


def unary(path: str, request: bytes, metadata: Headers = ()) -> HostileCall:
    """A call of one request."""
    return HostileCall(path, iter((frame(request),)), metadata)


async def unknown_fields(target: Target, got: Got) -> None:
    """Millions of fields that the request does not have, to the one method without a proof."""
    body = b"\x78\x01" * (BODY_BYTES // 2)
    bodies = (body, b"\x0b" + body + b"\x0c", (b"\x0b" + body[:2000] + b"\x0c") * 2000)
    await call_on(target, got, (unary(HEALTH, each) for each in cycle(bodies)))


async def tiny_messages(target: Target, got: Got) -> None:
    """Lists of millions of empty messages, of empty texts, and of numbers."""
    bodies = (
        (COMMIT_CURSOR, b"\x1a\x00" * (BODY_BYTES // 2)),
        (DESCRIBE, b"\x0a\x00" * (BODY_BYTES // 2)),
        (FLUSHES, field(0x12, b"\x01" * BODY_BYTES)),
    )
    await call_on(target, got, (unary(path, body) for path, body in cycle(bodies)))


async def wrong_lengths(target: Target, got: Got) -> None:
    """Lengths of what is not there, endless numbers, groups without an end."""
    broken = (
        b"\x0a" + varint((1 << 63) - 1),
        b"\x0a" + varint((1 << 31) - 1) + b"x",
        b"\x0a" + b"\xff" * 9 + b"\x01",
        b"\x0a" + b"\xff" * 5000,
        b"\x08" + b"\x80" * 5000,
        b"\x0b" * 5000,
        b"\x0c",
        b"\x00" * 5000,
        b"\x0f",
        field(0x0A, b"\xff\xfe"),
    )
    paths = (HEALTH, COMMIT_CURSOR, DESCRIBE, CREATE)
    calls = ((path, body) for body in cycle(broken) for path in paths)
    await call_on(target, got, (unary(path, body) for path, body in calls))


async def deep_requests(target: Target, got: Got) -> None:
    """Messages in messages, and groups in groups, thousands deep."""
    nested = b""
    for _ in range(20_000):
        nested = (b"\x0a" + varint(len(nested)) + nested)[-40_000:]
    bodies = (nested, b"\x0b" * 90 + b"\x0c" * 90, b"\x7b" * 50_000)
    calls = ((path, body) for body in cycle(bodies) for path in (BROADCAST, COMMIT_CURSOR, CREATE))
    await call_on(target, got, (unary(path, body) for path, body in calls))


async def many_properties(target: Target, got: Got) -> None:
    """Produced messages with a million properties, and a header of rows with as many ids."""
    keys = [field(0x0A, f"{number:05x}".encode()) for number in range(700_000)]
    plain = {"_t": "2", "_v": "1", "_vc": f"{target.pchannel}_1v0", "_h": ""}
    headed = plain | {"_h": base64_text(field(0x12, b"\x01" * (4 * MIB)))}
    requests = (
        produce_request(1, message(b"", plain) + b"".join([field(0x12, key) for key in keys])),
        produce_request(2, message(b"", headed)),
    )
    await produce(target, got, cycle(requests))


async def many_batch_fields(target: Target, got: Got) -> None:
    """Batches of millions of sizes, of shared properties, and of fields that they do not have."""
    named = field(0x0A, f"{target.pchannel}_1v0".encode())
    requests = (
        named + field(0x12, b"\x01\0\0\0" * (BODY_BYTES // 4)),
        named + b"\x15\0\0\0\0" * (BODY_BYTES // 5),
        named + b"\x1a\x00" * (BODY_BYTES // 2),
        named + b"\x78\x01" * (BODY_BYTES // 2),
    )
    await append_batches(target, got, cycle(requests))


async def unfinished_requests(target: Target, got: Got) -> None:
    """Of 15 MiB each, sixty-four at a time, which come by bytes once they have begun."""

    def trickle() -> Iterator[bytes]:
        yield pack(">BI", 0, BODY_BYTES_MAX) + bytes(MIB)
        for number in count():
            yield b"\0" if number % 100 == 0 else b""

    calls = (HostileCall(path, trickle()) for path in cycle((HEALTH, DESCRIBE)))
    await call_on(target, got, calls, at_once=UNFINISHED)
