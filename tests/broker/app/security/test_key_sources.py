"""Keys behind files and URLs, with real servers that misbehave."""

import os
import ssl
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from broker.app.security.key_sources import (
    HEADERS_BYTES_MAX,
    BadSource,
    FileSource,
    UrlSource,
    _stamp,
    key_source,
)
from broker.core.security.key_place import KeyUrl, key_url
from broker.edge.access.jwt.key_set import KEY_SET_BYTES_MAX
from tests.issued_files import Authorities
from tests.key_page import Answer, Page, published, sending

BODY = b'{"keys": []}'


def url_of(page: Page) -> KeyUrl:
    found = key_url(page.url)
    assert found is not None
    return found


async def test_a_page_is_read_with_one_request() -> None:
    async with published(Page(BODY)) as page:
        assert await key_source(page.url).read() == BODY
        (request,) = page.requests
    lines = request.decode().split("\r\n")
    assert lines[0] == "GET /keys?v=1 HTTP/1.1"
    assert lines[1].startswith("Host: 127.0.0.1:")
    assert lines[-2:] == ["", ""]


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        (OK + b"\r\n" + BODY,),
        (b"HTTP/1.0 200 OK\r\n\r\n", BODY[:5], BODY[5:]),
        (OK + b"Content-Length: 12\r\n", b"\r\n", BODY[:5], BODY[5:]),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n",
            BODY[:5],
            b"\r\n7\r\n",
            BODY[5:] + b"\r\n0\r\n\r\n",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"\r\n" + BODY,),
    ],
)
async def test_an_answer_in_any_form_of_http_is_read(parts: tuple[bytes, ...]) -> None:
    page = Page()
    page.answer = sending(*parts)
    async with published(page):
        assert await key_source(page.url).read() == BODY


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((), "closed connection"),
        ((b"\r\n\r\n",), "127.0.0.1"),
        ((b"SSH-2.0-OpenSSH\r\n\r\n",), "SSH"),
        ((b"HTTP/1.1 404 Not Found\r\n\r\n",), "the answer is 404 'Not Found'"),
        ((b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",), "the answer is 302"),
        ((OK + b"Content-Length: 13\r\n\r\n" + BODY,), "IncompleteRead"),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",), "IncompleteRead"),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"9" * 40 + b"\r\n",), "no number of bytes"),
        ((OK + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n",), "no number of bytes"),
        ((OK + b"a: b\r\n" * 200 + b"\r\n",), "more than 100 headers"),
        ((b"HTTP/1.1 200 " + b"a" * 70_000 + b"\r\n\r\n",), "line"),
        ((OK, *([b" " * 65_536] * 6)), "over 262144 bytes"),
        ((OK + b"Content-Length: 9999999999\r\n\r\n", *([b" " * 65_536] * 6)), "over 262144"),
    ],
)
async def test_what_is_no_answer_is_refused(parts: tuple[bytes, ...], words: str) -> None:
    page = Page()
    page.answer = sending(*parts)
    async with published(page):
        with pytest.raises(BadSource, match=words):
            await key_source(page.url).read()


async def _silence(_: Page, stream: anyio.abc.ByteStream) -> None:
    await stream.receive()


async def _drips(_: Page, stream: anyio.abc.ByteStream) -> None:
    await stream.send(OK)
    while True:
        await stream.send(b"a")
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("answer", [_silence, _drips])
async def test_a_page_that_does_not_end_is_given_up(answer: Answer) -> None:
    page = Page()
    page.answer = answer
    async with published(page):
        with pytest.raises(BadSource, match=r"did not answer within 0\.2 s"):
            await UrlSource(url_of(page), within_s=0.2).read()


async def test_a_port_where_nobody_listens_is_told() -> None:
    async with published(Page()) as page:
        url = page.url
    with pytest.raises(BadSource, match=r"127\.0\.0\.1"):
        await key_source(url).read()


def server_context(authorities: Authorities) -> ssl.SSLContext:
    files = authorities.server(asks=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    return context


async def test_a_page_behind_tls_is_believed_if_its_certificate_is(tmp_path: Path) -> None:
    ours = Authorities(tmp_path / "ours")

    def trust() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=ours.ca)

    async with published(Page(BODY), server_context(ours)) as page:
        assert await UrlSource(url_of(page), trust).read() == BODY
        with pytest.raises(BadSource, match="its certificate is not trusted"):
            await key_source(page.url).read()
        assert page.asked == 1


async def test_a_certificate_of_another_name_is_not_believed(tmp_path: Path) -> None:
    ours = Authorities(tmp_path / "ours")
    cert, key = ours.issue("other", "id.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with published(Page(BODY), context) as page:
        source = UrlSource(url_of(page), lambda: ssl.create_default_context(cafile=ours.ca))
        with pytest.raises(BadSource, match=r"its certificate is not trusted: .*127\.0\.0\.1"):
            await source.read()
        assert page.asked == 0


async def test_a_file_is_read_up_to_what_a_key_set_may_have(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    with pytest.raises(BadSource, match="No such file"):
        await key_source(str(file)).read()
    file.write_bytes(BODY)
    assert await FileSource(file).read() == BODY
    file.write_bytes(b" " * (KEY_SET_BYTES_MAX + HEADERS_BYTES_MAX))
    assert len(await FileSource(file).read()) == KEY_SET_BYTES_MAX + 1
    with pytest.raises(BadSource, match="Is a directory"):
        await FileSource(tmp_path).read()


async def test_a_file_is_read_again_only_once_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    now_s = 0.0
    source = FileSource(file, lambda: now_s)

    async def reads_of(content: bytes) -> int:
        before = source.reads
        assert await source.read() == content
        return source.reads - before

    file.write_bytes(BODY)
    assert await reads_of(BODY) == 1
    now_s = 1.9
    assert await reads_of(BODY) == 1, "a change within the file system's clock may look the same"
    now_s = 2.0
    assert await reads_of(BODY) == 1
    now_s = 2.25
    assert await reads_of(BODY) == 0

    other = bytes(len(BODY))
    about = file.stat()
    file.write_bytes(other)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert await reads_of(other) == 1, "in place, as long as before, with its time set back"

    replacing = tmp_path / "new.json"
    replacing.write_bytes(BODY)
    replacing.replace(file)
    assert await reads_of(BODY) == 1
    now_s = 10.0
    file.unlink()
    with pytest.raises(BadSource, match="No such file"):
        await source.read()
    file.write_bytes(other)
    assert await reads_of(other) == 1


async def test_a_change_that_cannot_be_seen_is_found_while_the_file_is_new(tmp_path: Path) -> None:
    """As on a file system whose times have whole seconds: the same inode, size and times."""
    file = tmp_path / "keys.json"
    file.write_bytes(BODY)
    now_s = 0.0
    source = FileSource(file, lambda: now_s)
    assert await source.read() == BODY
    assert source._read is not None
    file.write_bytes(BODY[::-1])
    with file.open("rb") as opened:
        source._read = replace(source._read, stamp=_stamp(opened.fileno()))
    now_s = 1.0
    assert await source.read() == BODY[::-1]


async def test_how_often_a_url_is_read_can_be_set() -> None:
    seldom = key_source("https://id.example/keys")
    assert (seldom.period_s, seldom.pause_s) == (60.0, 10.0)
    often = key_source("https://id.example/keys", 5.0)
    assert (often.period_s, often.pause_s) == (5.0, 5.0)


async def test_the_system_decides_whom_to_trust_unless_told() -> None:
    source = key_source("https://id.example/keys")
    assert isinstance(source, UrlSource)
    context = source._trust()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
