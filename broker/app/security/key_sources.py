"""Reads what an identity provider publishes: a file, or a page behind a URL.

Why not `urllib` in a thread: it cannot be cancelled, and its deadline starts anew with each byte.
Redirects are not followed, and proxies are not used.
"""

import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, IncompleteRead
from io import BytesIO
from pathlib import Path
from typing import Final, Protocol, cast

import anyio
from anyio.abc import ByteStream

from broker.core.security.key_place import KeyUrl, key_url
from broker.core.security.key_refresh import PAUSE_S
from broker.edge.access.jwt.key_set import KEY_SET_BYTES_MAX

READ_S: Final = 5.0
"""A read that takes longer, from the name to the last byte, has failed."""
HEADERS_BYTES_MAX: Final = 64 * 1024
CHUNK_BYTES: Final = 64 * 1024
URL_PERIOD_S: Final = 60.0
FILE_PERIOD_S: Final = 0.2
"""So that each look of KeyWatch reads: what a withdrawn key has open ends within 2 s."""
SETTLED_S: Final = 2.0
"""A file that has looked the same for so long is not read again: later changes look different,
as no file system has coarser times."""
FILE_PAUSE_S: Final = 0.0


class BadSource(Exception):
    """The keys cannot be read; says why."""


class KeySource(Protocol):
    """Where the keys are. How often they should be read: after `period_s`, and after `pause_s` if
    a key is not known."""

    period_s: float
    pause_s: float

    async def read(self) -> bytes:
        """All of it, of at most KEY_SET_BYTES_MAX bytes, within READ_S. Raises BadSource."""
        ...


def key_source(place: str, url_period_s: float = URL_PERIOD_S) -> KeySource:
    """The source that the setting names; see `key_url`."""
    url = key_url(place)
    return FileSource(Path(place)) if url is None else UrlSource(url, period_s=url_period_s)


class FileSource:
    """A file, which may be replaced or changed at any time; it is read when it has."""

    period_s, pause_s = FILE_PERIOD_S, FILE_PAUSE_S

    def __init__(self, path: Path, now_s: Callable[[], float] = anyio.current_time) -> None:
        self._path = path
        self._now_s = now_s
        self._read: _FileRead | None = None
        self.reads = 0
        """How often its content was read."""

    async def read(self) -> bytes:
        """See KeySource."""
        try:
            with anyio.fail_after(READ_S):
                read = await anyio.to_thread.run_sync(
                    self._content, self._read, self._now_s(), abandon_on_cancel=True
                )
        except TimeoutError:
            raise BadSource(f"{self._path} was not read within {READ_S:g} s") from None
        except OSError as error:
            raise BadSource(f"cannot read {self._path}: {error.strerror or error}") from None
        self.reads += read is not self._read
        self._read = read
        return read.content

    def _content(self, last: "_FileRead | None", now_s: float) -> "_FileRead":
        """In a thread: what was read last, if the file has not changed since."""
        with self._path.open("rb") as file:
            # Before its bytes: what changes while they are read is read again.
            stamp = _stamp(file.fileno())
            since_s = now_s
            if last is not None and last.stamp == stamp:
                since_s = last.since_s
                if last.settled:
                    return last
            content = file.read(KEY_SET_BYTES_MAX + 1)
        return _FileRead(content, stamp, since_s, settled=now_s - since_s >= SETTLED_S)


@dataclass(frozen=True, slots=True)
class _FileRead:
    """`since_s`: when the file was first seen with this stamp."""

    content: bytes
    stamp: tuple[int, int, int, int]
    since_s: float
    settled: bool


def _stamp(file: int) -> tuple[int, int, int, int]:
    """What changes with a file: also when its time of change was set back."""
    about = os.fstat(file)
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


class UrlSource:
    """A page, asked for with one GET on a connection of its own.

    `trust`: whom to believe that they have the name in the URL; the system's authorities.
    """

    def __init__(
        self,
        url: KeyUrl,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        within_s: float = READ_S,
        period_s: float = URL_PERIOD_S,
    ) -> None:
        self.period_s, self.pause_s = period_s, min(PAUSE_S, period_s)
        self._url = url
        self._trust = trust
        self._within_s = within_s

    async def read(self) -> bytes:
        """See KeySource."""
        try:
            with anyio.fail_after(self._within_s):
                async with await self._connected() as stream:
                    await stream.send(self._request())
                    return await _body(stream)
        except TimeoutError:
            raise BadSource(f"{self._url} did not answer within {self._within_s:g} s") from None
        # An answer may be cut off at every byte, and hold anything.
        except (OSError, HTTPException, ValueError, anyio.BrokenResourceError) as error:
            raise BadSource(f"{self._url}: {_sentence(error)}") from None

    async def _connected(self) -> ByteStream:
        url = self._url
        if not url.secure:
            return await anyio.connect_tcp(url.host, url.port)
        return await anyio.connect_tcp(
            url.host,
            url.port,
            ssl_context=self._trust(),
            tls_hostname=url.host,
            # Many servers just close; the length of the answer tells whether it is whole.
            tls_standard_compatible=False,
        )

    def _request(self) -> bytes:
        host = f"[{self._url.host}]" if ":" in self._url.host else self._url.host
        lines = (
            f"GET {self._url.path} HTTP/1.1",
            f"Host: {host}:{self._url.port}",
            "Accept: application/jwk-set+json, application/json",
            "User-Agent: tidemark",
            "Connection: close",
        )
        return "".join([f"{it}\r\n" for it in (*lines, "")]).encode("ascii")


async def _body(stream: ByteStream) -> bytes:
    data = b""
    while True:
        try:
            chunk = await stream.receive(CHUNK_BYTES)
        except anyio.EndOfStream:
            chunk = b""
        data += chunk
        if len(data) > KEY_SET_BYTES_MAX + HEADERS_BYTES_MAX:
            raise BadSource(f"the answer has over {KEY_SET_BYTES_MAX} bytes")
        body = answer_body(data, ended=not chunk)
        if body is not None:
            return body


def answer_body(data: bytes, *, ended: bool) -> bytes | None:
    """The body of the answer; None while parts are missing.

    `ended`: nothing more will come. Raises HTTPException, ValueError, BadSource.
    """
    if b"\r\n\r\n" not in data and not ended:
        return None
    response = HTTPResponse(cast(socket.socket, _Received(data)))
    response.begin()
    if response.status != 200:
        raise BadSource(f"the answer is {response.status} {response.reason[:80]!r}, not 200")
    if response.length is None and not response.chunked and not ended:
        return None
    try:
        return response.read()
    except IncompleteRead:
        if ended:
            raise
        return None
    except OverflowError:
        raise BadSource("the answer gives a length that is no number of bytes") from None


class _Received:
    """What has arrived, as the socket that HTTPResponse asks for a file and nothing else."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _: str) -> BytesIO:
        return BytesIO(self._data)


def _sentence(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return str(error) or type(error).__name__
