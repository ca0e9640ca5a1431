"""Rotation, with a real server and a clock that the test moves."""

import ssl
from functools import partial
from pathlib import Path

import anyio
import pytest

from actors import ChildSpec, MailboxSpec, SupervisorSpec, System
from broker.app.security.key_sources import KeySource, UrlSource, key_source
from broker.app.security.key_watch import KeyWatch, read_if_due
from broker.core.security.access_book import Principal
from broker.core.security.jwt_rules import JwtRules
from broker.core.security.key_place import key_url
from broker.core.security.key_refresh import PAUSE_S, RETRY_S, KeyRefresh
from broker.edge.access.jwt.jwt_tokens import JwtTokens
from broker.edge.access.jwt.key_ring import KeyRing
from broker.model.failure import Refused
from tests.issued_files import Authorities
from tests.jwt_provider import AUDIENCE, ISSUER, NOW_S, claims, jwk, key_set, token
from tests.key_page import Page, published, sending

OLD, NEW = jwk("old"), jwk("new", number=1)
BY_OLD = token(claims(), "old")
BY_NEW = token(claims(sub="eve"), "new", number=1)


class Process:
    """Keys and the check of tokens, at a time that stands still until it is moved."""

    def __init__(self, source: KeySource) -> None:
        self.now_s = 0.0
        self.source = source
        self.ring = KeyRing(KeyRefresh(source.period_s, source.pause_s), lambda: self.now_s)
        self.tokens = JwtTokens(JwtRules(ISSUER, AUDIENCE), self.ring)

    async def look(self) -> bool:
        return await read_if_due(self.ring, self.source)

    def shows(self, text: str) -> Principal:
        return self.tokens(text, NOW_S * 1000)

    async def refuses(self, text: str) -> None:
        await self.tokens.prepare(text)
        with pytest.raises(Refused, match="does not publish"):
            self.shows(text)


@pytest.mark.parametrize("secure", [False, True])
async def test_keys_rotate_while_tokens_of_both_are_used(tmp_path: Path, secure: bool) -> None:
    ours = Authorities(tmp_path / "tls")
    files = ours.server(asks=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    page = Page(key_set(OLD))
    async with published(page, context if secure else None):
        url = key_url(page.url)
        assert url is not None
        trust = partial(ssl.create_default_context, cafile=str(ours.ca))
        process = Process(UrlSource(url, trust))
        assert await process.look()
        assert process.shows(BY_OLD).name == "jwt:ann"
        await process.refuses(BY_NEW)

        page.body = key_set(OLD, NEW)
        process.now_s = 59.0
        assert not await process.look()
        process.now_s = 60.0
        assert await process.look()
        assert process.shows(BY_OLD).name == "jwt:ann"
        assert process.shows(BY_NEW).name == "jwt:eve"

        page.body = key_set(NEW)
        process.now_s = 120.0
        assert await process.look()
        assert process.shows(BY_NEW).name == "jwt:eve"
        await process.refuses(BY_OLD)
        assert page.asked == 3


async def test_a_token_of_a_new_key_waits_for_it() -> None:
    page = Page(key_set(OLD))
    async with published(page):
        process = Process(key_source(page.url))
        await process.look()
        page.body = key_set(OLD, NEW)
        process.now_s = PAUSE_S
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.tokens.prepare, BY_NEW)
            await anyio.wait_all_tasks_blocked()
            assert await process.look()
        assert process.shows(BY_NEW).name == "jwt:eve"


async def test_strangers_with_any_key_ids_do_not_make_us_ask() -> None:
    page = Page(key_set(OLD))
    async with published(page):
        process = Process(key_source(page.url))
        await process.look()
        for number in range(200):
            process.now_s += 0.049
            await process.tokens.prepare(token(claims(), f"evil{number}"))
            assert not await process.look()
        assert page.asked == 1
        assert process.shows(BY_OLD).name == "jwt:ann"


async def test_a_provider_that_is_away_keeps_the_keys_and_health_tells_it() -> None:
    page = Page(key_set(OLD))
    async with published(page):
        process = Process(key_source(page.url))
        await process.look()
        for answer in (b"", b"HTTP/1.1 500 Oops\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n<html>"):
            page.answer = sending(answer)
            process.now_s += 300.0
            assert await process.look()
            assert process.shows(BY_OLD).name == "jwt:ann"
            (told,) = process.ring.warnings()
            assert "the last 1 stay in force" in told
    process.now_s += RETRY_S
    assert await process.look()
    (told,) = process.ring.warnings()
    assert "for 930 s" in told
    assert process.shows(BY_OLD).name == "jwt:ann"


async def test_a_file_is_read_again_soon_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(OLD))
    process = Process(key_source(str(file)))
    await process.look()
    file.write_bytes(key_set(OLD, NEW)[:-5])
    process.now_s = 10.0
    assert await process.look()
    assert process.shows(BY_OLD).name == "jwt:ann"
    assert "no JSON" in process.ring.failure
    file.write_bytes(key_set(OLD, NEW))
    process.now_s = 20.0
    assert await process.look()
    assert process.shows(BY_NEW).name == "jwt:eve"
    assert process.ring.warnings() == []
    known = process.ring.keys
    process.now_s = 21.0
    assert await process.look()
    assert process.ring.keys is known, "nothing changed, so nothing is checked again"
    # A token of an unknown key does not wait for the period.
    file.write_bytes(key_set(NEW))
    process.now_s = 21.1
    await asked_by(process, token(claims(), "newer"))
    with pytest.raises(Refused):
        process.shows(BY_OLD)


async def asked_by(process: Process, text: str) -> None:
    """A call with this token, and the look that it waits for."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process.tokens.prepare, text)
        await anyio.wait_all_tasks_blocked()
        assert await process.look()


async def test_a_cancelled_read_does_not_stop_later_ones() -> None:
    page = Page(key_set(OLD))

    async def never(_: Page, stream: anyio.abc.ByteStream) -> None:
        await stream.receive()

    page.answer = never
    async with published(page):
        process = Process(key_source(page.url))
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(process.look)
                while not page.asked:
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        page.answer = Page.whole
        process.now_s = 60.0
        assert await process.look()
        assert process.shows(BY_OLD).name == "jwt:ann"


async def test_the_actor_looks_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(OLD))
    process = Process(key_source(str(file)))
    watch = ChildSpec(
        "jwt_keys", lambda: KeyWatch(process.ring, process.source), MailboxSpec(bound=16)
    )
    with anyio.fail_after(60):
        async with System(SupervisorSpec("root", children=(watch,))) as system:
            await process.tokens.prepare(BY_OLD)
            assert process.shows(BY_OLD).name == "jwt:ann"
            (shown,) = [it for it in system.statistics() if it.path == "/root/jwt_keys"]
            assert shown.kind == "actor"
