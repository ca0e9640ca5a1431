"""Names that could lead out of a folder, break a line, or be taken for others, on every service."""

import asyncio
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import anyio
import betterproto2
from betterproto2 import Message

from schemas.encoding.fields import field
from schemas.generated.milvus.proto import streaming
from schemas.generated.tidemark import v1
from schemas.handshake import CREATE_CONSUMER
from schemas.message_bytes import encoded
from schemas.properties.broadcast_header import BroadcastHeader, write_broadcast_header
from schemas.wire import message, produce_request
from tests.limits.hostile.attack import Got, Target
from tests.limits.hostile.hostile_caller import HostileCall, call_on
from tests.limits.hostile.hostile_requests import BROADCAST, unary
from tests.limits.hostile.hostile_streams import (
    APPEND,
    PRODUCE,
    append_batches,
    produce,
    producing,
)

CONSUME = "/milvus.proto.streaming.StreamingNodeHandlerService/Consume"
PROTOS = Path(__file__).parents[3] / "schemas" / "proto"
SERVED: Final = (
    (PROTOS / "tidemark" / "v1", "tidemark.v1", v1),
    (PROTOS / "milvus", "milvus.proto.streaming", streaming),
)
SERVICE = re.compile(r"^service (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
UNARY = re.compile(r"^\s*rpc (\w+)\((\w+)\)", re.MULTILINE)
COMMENT = re.compile(r"//.*")
DEPTH_MAX = 3

TRICKS: Final = (
    "../x", "../../../../tmp/x", "/etc/passwd", "a/../../b", "..", ".", "./x", "x/", "\\..\\x",
    "C:\\x", "%2e%2e%2fx", "%00", "a\0b", "x\n2026 forged=line", "\r\n\r\n", "\x1b[2J", "~/x",
    "$HOME", "`id`", "';--", "{}", "a" * 5000, "../" * 3000, "\u202ex", "\uff0e\uff0e/x",
    "\u0430dmin", "tra\u0131ns", "rows\u200b", "\u2024\u2024/x", "\U0001f40d" * 99, "-rf", "CON",
)  # fmt: skip
"""Of paths, of lines, of shells, of look-alikes in Unicode, and too long."""


async def native_names(target: Target, got: Got) -> None:
    """In all texts of the requests of every method of `tidemark.v1` with one request."""
    await call_on(target, got, _calls(target, SERVED[0]))


async def milvus_names(target: Target, got: Got) -> None:
    """The same on Milvus's services, in the headers of its streams, and in broadcasts."""

    def streams() -> Iterator[HostileCall]:
        for name in cycle(TRICKS):
            for pchannel in (name, f"{target.pchannel}{name}", f"{target.pchannel}_{name}"):
                for path in (PRODUCE, APPEND):
                    yield HostileCall(path, iter(()), producing(pchannel, target.term))
                ((_, header),) = producing(pchannel, target.term)
                yield HostileCall(CONSUME, iter(()), ((CREATE_CONSUMER, header),))
            header = write_broadcast_header(BroadcastHeader(0, (f"{target.pchannel}_{name}",)))
            told = message(b"", {"_t": "15", "_v": "1", "_h": "", "_bh": header})
            yield unary(BROADCAST, field(0x0A, told))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call_on, target, got, _calls(target, SERVED[1]))
        tasks.start_soon(call_on, target, got, streams())


async def vchannel_names(target: Target, got: Got) -> None:
    """As vchannels of messages and batches, on the right pchannel and on others."""
    names = [
        name
        for trick in TRICKS
        for name in (trick, f"{target.pchannel}_{trick}", f"{target.pchannel}_{trick}v0")
    ] + [f"{target.pchannel}_{'9' * 5000}v0", f"{target.pchannel}_v{'x' * (1 << 20)}"]
    produced = [
        produce_request(1, message(b"x", {"_t": "2", "_v": "1", "_h": "", "_vc": name}))
        for name in names
    ]
    batches = [field(0x0A, name.encode()) + b"\x12\x04\x01\0\0\0" + b"\x7a\x01x" for name in names]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce, target, got, cycle(produced))
        tasks.start_soon(append_batches, target, got, cycle(batches))


def _calls(target: Target, served: tuple[Path, str, ModuleType]) -> Iterator[HostileCall]:
    methods = [*_methods(*served)]
    for name in cycle(TRICKS):
        for path, kind in methods:
            yield unary(path, encoded(_named(kind, name)))


def _methods(folder: Path, package: str, module: ModuleType) -> Iterator[tuple[str, type[Message]]]:
    """Path and request of each method with one request in which a text may stand."""
    kinds: dict[str, Any] = {
        name.lower(): it for name, it in inspect.getmembers(module, inspect.isclass)
    }
    for file in sorted(folder.rglob("*.proto")):
        for name, body in SERVICE.findall(COMMENT.sub("", file.read_text())):
            for method, request in UNARY.findall(body):
                kind = kinds.get(request.lower())
                if kind is not None and bytes(_named(kind, "x")):
                    yield f"/{package}.{name}/{method}", kind


def _named(kind: Any, name: str, depth: int = 0) -> Any:
    """A message with this name in each of its texts."""
    shape = kind._betterproto
    values: dict[str, Any] = {}
    for key, meta in shape.meta_by_field_name.items():
        value: Any = None
        if meta.map_meta is None and meta.proto_type == betterproto2.TYPE_STRING:
            value = name
        elif meta.map_meta is None and meta.proto_type == betterproto2.TYPE_MESSAGE:
            own = shape.cls_by_field[key]
            if depth < DEPTH_MAX and not meta.group and hasattr(own, "_betterproto"):
                value = _named(own, name, depth + 1)
        if value is not None:
            values[key] = [value] if meta.repeated else value
    return kind(**values)


async def page_paths(target: Target, got: Got) -> None:
    """Paths of the HTTP port, as browsers would never send them."""
    lines = [f"GET {trick} HTTP/1.1" for trick in TRICKS]
    lines += [f"GET /{trick} HTTP/1.1" for trick in TRICKS]
    lines += [f"GET /metrics/{trick} HTTP/1.1" for trick in TRICKS]
    lines += [
        *(
            "GET http://127.0.0.1/metrics HTTP/1.1",
            "GET //healthz HTTP/1.1",
            "GET /healthz/. HTTP/1.1",
        ),
        *("GET /%68ealthz HTTP/1.1", "GET /HEALTHZ HTTP/1.1", "GET /healthz;x HTTP/1.1", "GET"),
        *("CONNECT 127.0.0.1:1 HTTP/1.1", "DELETE /healthz HTTP/1.1", "PUT /metrics HTTP/1.1"),
        *("GET /healthz HTTP/9" + "9" * 9000, "\0" * 100, "GET /" + "a" * 20_000 + " HTTP/1.1"),
    ]
    requests = cycle([f"{line}\r\nHost: x\r\n\r\n".encode() for line in lines])

    async def ask() -> None:
        for request in requests:
            got[await _page(target.http_port, request)] += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(ask)


async def _page(port: int, request: bytes) -> str:
    """The status of the answer."""
    answer = b""
    with suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            answer = await reader.read(1 << 16)
        finally:
            writer.transport.abort()
    status = answer.split(b" ", 2)[1:2]
    return f"HTTP {status[0].decode()}" if status else "closed"
