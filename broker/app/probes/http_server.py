"""A small HTTP/1.1 server for probes and scrapers: GET of a few pages, one request a connection.

Bounded against slow and many peers: a request has `REQUEST_S_MAX` in all, and when
`CONNECTIONS_MAX` are open a new connection takes the place of the oldest one, so that peers that
send nothing cannot keep a probe out.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from broker.transport.tls import ServerTls
from broker.transport.tls_server import HandshakeLimits, TlsServer

HEAD_BYTES_MAX: Final = 16 * 1024
REQUEST_S_MAX: Final = 5.0
CLOSE_S: Final = 1.0
CONNECTIONS_MAX: Final = 64
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The response to one request."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A GET: the values of its headers by their names in lower case, and HOST:PORT of its peer.

    `certificate`: what the peer has shown of itself, as Python parses it; None without.
    """

    headers: Mapping[str, str]
    address: str
    certificate: dict[str, object] | None = None


Page = Callable[[PageRequest], Awaitable[PageAnswer]]
"""Answers a GET."""


@asynccontextmanager
async def http_served(
    host: str, port: int, pages: Mapping[str, Page], tls: ServerTls | None = None
) -> AsyncIterator[int]:
    """Serve the pages, by path, until the block ends; yields the port. Raises OSError."""
    # In the order of their arrival, as a dict keeps it.
    busy: dict[asyncio.StreamWriter, None] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(busy) >= CONNECTIONS_MAX:
            next(iter(busy)).transport.abort()
        busy[writer] = None
        # So that drain() returns only when everything was handed to the kernel.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                await _answer(reader, writer, pages)
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError):
            pass  # the peer has gone, or does not speak HTTP
        finally:
            busy.pop(writer, None)
            # A peer that does not read: close() would keep the connection until it does.
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            else:
                writer.close()

    def made() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(HEAD_BYTES_MAX), handle)

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server: asyncio.Server | TlsServer
    if tls is None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(made, host, port, family=family)
    else:
        listening = socket.create_server((host, port), family=family)
        server = TlsServer(listening, made, tls, HandshakeLimits(REQUEST_S_MAX, CLOSE_S))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in tuple(busy):
            writer.transport.abort()


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: Mapping[str, Page]
) -> None:
    # Any bytes decode as Latin-1, so rubbish fails at the split below and nowhere else.
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    request, *lines = head.split("\r\n")
    method, target, _ = request.split(" ", 2)
    fields = [line.partition(": ") for line in lines if ": " in line]
    headers = {name.lower(): value for name, _, value in fields}
    page = pages.get(target.partition("?")[0])
    if page is None:
        found = PageAnswer(f"there are {', '.join(pages)}\n".encode(), status=HTTPStatus.NOT_FOUND)
    elif method not in ("GET", "HEAD"):
        found = PageAnswer(b"pages are read with GET\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
    else:
        host, port, *_ = writer.get_extra_info("peername") or ("", 0)
        shown = writer.get_extra_info("peercert") or None
        found = await page(PageRequest(headers, f"{host}:{port}", shown))
    lines = [
        f"HTTP/1.1 {found.status.value} {found.status.phrase}",
        f"Content-Type: {found.content_type}",
        f"Content-Length: {len(found.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *found.headers,
        "",
        "",
    ]
    body = b"" if method == "HEAD" else found.body
    writer.write("\r\n".join(lines).encode("latin-1") + body)
    await writer.drain()
