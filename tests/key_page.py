"""A web server on loopback that publishes a key set, or misbehaves."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.tls import TLSListener

Answer = Callable[["Page", anyio.abc.ByteStream], Awaitable[None]]


class Page:
    """What is published; counts the requests."""

    def __init__(self, body: bytes = b"") -> None:
        self.body = body
        self.asked = 0
        self.requests: list[bytes] = []
        self.answer: Answer = Page.whole
        self.url = ""

    async def whole(self, stream: anyio.abc.ByteStream) -> None:
        """With its length, on a connection that stays open."""
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.body)}\r\n\r\n"
        await stream.send(head.encode() + self.body)
        with anyio.move_on_after(30):
            await stream.receive()

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        async with stream:
            try:
                request = await stream.receive()
                self.asked += 1
                self.requests.append(request)
                await self.answer(self, stream)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the client has left


def sending(*parts: bytes) -> Answer:
    """An answer of these bytes, after which the connection ends."""

    async def send(_: Page, stream: anyio.abc.ByteStream) -> None:
        for part in parts:
            await stream.send(part)

    return send


@asynccontextmanager
async def published(page: Page, tls: ssl.SSLContext | None = None) -> AsyncIterator[Page]:
    """Serve the page while the block runs; `page.url` is set."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    page.url = f"http{'s' if tls else ''}://127.0.0.1:{port}/keys?v=1"
    async with anyio.create_task_group() as tasks:

        async def serve_plain() -> None:
            await listener.serve(_plain)

        async def _plain(stream: SocketStream) -> None:
            await page.serve(stream)

        async def serve_tls() -> None:
            assert tls is not None
            secured = TLSListener(listener, tls, standard_compatible=False)
            await secured.serve(page.serve)

        tasks.start_soon(serve_tls if tls else serve_plain)
        yield page
        tasks.cancel_scope.cancel()
    await listener.aclose()
