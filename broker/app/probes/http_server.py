"""A small HTTP/1.1 server for probes and scrapers: GET of a few pages, one request a connection.

Bounded against slow and many peers: a request has `PEER_S_MAX` to arrive, its answer as long to be
taken, and when `CONNECTIONS_MAX` are open a new connection takes the place of the oldest one, so
that peers that send nothing cannot keep a probe out. A page that is not made within `PAGE_S_MAX`
is answered with 503: who asks learns that the process is slow, not that it has gone.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog

from broker.transport.tls import ServerTls
from broker.transport.tls_server import HandshakeLimits, TlsServer

log = structlog.get_logger("tidemark")

HEAD_BYTES_MAX: Final = 16 * 1024
PEER_S_MAX: Final = 5.0
PAGE_S_MAX: Final = 20.0
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
    host: str,
    port: int,
    pages: Mapping[str, Page],
    tls: ServerTls | None = None,
    page_s: float = PAGE_S_MAX,
) -> AsyncIterator[int]:
    """Serve the pages, by path, until the block ends; yields the port. Raises OSError."""
    # Who handles them, in the order of their arrival, as a dict keeps it.
    busy: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    def hang_up(writer: asyncio.StreamWriter) -> None:
        handling = busy.pop(writer)
        writer.transport.abort()
        if handling is not None:
            handling.cancel()  # it may be making a page, which nobody reads now

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(busy) >= CONNECTIONS_MAX:
            hang_up(next(iter(busy)))
        busy[writer] = asyncio.current_task()
        # So that drain() returns only when everything was handed to the kernel.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            request = await _request(reader)
            if request is not None:
                await _send(writer, request, await _answer(request, writer, pages, page_s))
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
        server = TlsServer(listening, made, tls, HandshakeLimits(PEER_S_MAX, CLOSE_S))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in tuple(busy):
            hang_up(writer)


@dataclass(frozen=True, slots=True)
class HttpHead:
    """The first line of a request, and its headers by their names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


def http_head(received: bytes) -> HttpHead | None:
    """What a peer asks for, by all that it sent up to an empty line; None if that is not HTTP."""
    # Any bytes decode as Latin-1, so rubbish fails at the split below and nowhere else.
    request, *lines = received.decode("latin-1").split("\r\n")
    try:
        method, target, _ = request.split(" ", 2)
    except ValueError:
        return None
    fields = [line.partition(": ") for line in lines if ": " in line]
    headers = {name.lower(): value for name, _, value in fields}
    return HttpHead(method, target.partition("?")[0], headers)


async def _request(reader: asyncio.StreamReader) -> HttpHead | None:
    """None from a peer that sends no request within PEER_S_MAX, or does not speak HTTP."""
    try:
        async with asyncio.timeout(PEER_S_MAX):
            received = await reader.readuntil(b"\r\n\r\n")
    except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
        return None
    return http_head(received)


async def _answer(
    request: HttpHead, writer: asyncio.StreamWriter, pages: Mapping[str, Page], page_s: float
) -> PageAnswer:
    page = pages.get(request.path)
    if page is None:
        there = f"there are {', '.join(pages)}\n"
        return PageAnswer(there.encode(), status=HTTPStatus.NOT_FOUND)
    if request.method not in ("GET", "HEAD"):
        return PageAnswer(b"pages are read with GET\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
    host, port, *_ = writer.get_extra_info("peername") or ("", 0)
    shown = writer.get_extra_info("peercert") or None
    limit = asyncio.timeout(page_s)
    try:
        async with limit:
            return await page(PageRequest(request.headers, f"{host}:{port}", shown))
    except Exception as error:
        if not limit.expired():
            log.exception("a page of the HTTP port failed", page=request.path, exc_info=error)
            failed = f"{request.path} failed; the log of the process says why\n"
            return PageAnswer(failed.encode(), status=HTTPStatus.INTERNAL_SERVER_ERROR)
    late = f"{request.path} was not made within {page_s:g} s: the process is slow; ask again\n"
    return PageAnswer(late.encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)


async def _send(writer: asyncio.StreamWriter, request: HttpHead, answer: PageAnswer) -> None:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *answer.headers,
        "",
        "",
    ]
    body = b"" if request.method == "HEAD" else answer.body
    # Of a peer that has gone, or does not read.
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PEER_S_MAX):
            writer.write("\r\n".join(lines).encode("latin-1") + body)
            await writer.drain()
