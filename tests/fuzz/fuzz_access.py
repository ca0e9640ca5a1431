"""Tokens, grants, files of first users, stored users, and what a probe asks the HTTP port for."""

from collections.abc import Coroutine
from dataclasses import dataclass
from os import stat_result
from pathlib import Path
from typing import Any, cast

from broker.app.probes.http_server import http_head
from broker.app.process_errors import CannotStart
from broker.app.security.bootstrap import with_bootstrap
from broker.coordinator.access.stored_access import StoredAccess
from broker.core.security.access_book import AccessBook
from broker.core.security.grants import Resource, ResourceKind, parsed_grant
from broker.core.security.tokens import (
    PREFIX,
    SECRET_LENGTH_MIN,
    StoredToken,
    digest_of,
    hash_text,
    read_hash,
    read_token,
)
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused
from tests.fuzz.choice import numbered, read_by_first_byte

NOW_MS = 1_800_000_000_000
SALT = b"s" * 16


def check(data: bytes) -> None:
    """A value that is written as it was read, or the typed error of the reader."""
    read_by_first_byte(data, READERS, (Refused, CannotStart))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _token(data: bytes) -> None:
    found = read_token(_text(data))
    if found is None:
        return
    assert found.text == _text(data)
    assert found.secret not in repr(found)
    stored = StoredToken(found.id, "ann", SALT, digest_of(SALT, found.secret), NOW_MS)
    assert stored.fits(found.secret)
    assert not stored.fits(found.secret + "x")


def _hash(data: bytes) -> None:
    found = read_hash(_text(data), "ann", NOW_MS, "")
    if found is not None:
        assert hash_text(found) == _text(data)


def _grant(data: bytes) -> None:
    written, _, name = _text(data).partition("\0")
    grant = parsed_grant(written)
    assert parsed_grant(str(grant)) == grant
    for kind in ResourceKind:
        Resource(kind, name)


@dataclass(frozen=True, slots=True)
class _TextFile:
    """Stands for a file of its owner alone."""

    content: bytes
    name: str = "users.toml"

    def read_text(self) -> str:
        return self.content.decode()

    def stat(self) -> stat_result:
        return stat_result((0o600, 0, 0, 0, 0, 0, len(self.content), 0, 0, 0))


def _first_users(data: bytes) -> None:
    book = with_bootstrap(AccessBook(), cast(Path, _TextFile(data)), NOW_MS)
    for token in book.tokens.values():
        assert token.user in book.users


def _stored(data: bytes) -> None:
    """A record of each kind with these bytes."""
    for kind in ("users/a", "roles/a", "tokens/a"):
        store = MemoryMetaStore()
        _now(store.write({f"auth/{kind}": data}))
        try:
            _now(StoredAccess(store).read())
        except Refused:
            continue


def _now(work: Coroutine[Any, Any, object]) -> None:
    """Run what waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("a store in memory waits for nothing")


def _head(data: bytes) -> None:
    found = http_head(data)
    if found is not None:
        assert "?" not in found.path
        assert " " not in found.method
        assert all(name == name.lower() for name in found.headers)


READERS = (_token, _hash, _grant, _first_users, _stored, _head)

INPUT_BYTES_MAX = 4096
_SECRET = b"x" * SECRET_LENGTH_MIN
_HASHED = b"sha256:t1:" + b"ab" * 16 + b":" + b"0" * 64
SEEDS = numbered(
    (
        PREFIX.encode() + b"t1_" + _SECRET,
        _HASHED,
        b"consume:collection:orders-*\0orders-1",
        b"*:*:*\0",
        b'[roles.ops]\ngrants = ["admin:cluster:*"]\n[users.ann]\nroles = ["ops"]\n'
        b'token = "tm_t1_' + _SECRET + b'"\ntoken_hash = "' + _HASHED + b'"\n',
        b'{"name": "ann", "roles": ["ops"], "grants": ["admin:cluster:*"]}',
        b'{"id":"t1","user":"ann","salt":"","digest":"","made_ms":1,"expires_ms":0,"note":""}',
        b"GET /metrics?a=b HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer x\r\n\r\n",
    ),
    len(READERS),
)
