"""Tokens of identity providers, the key sets that these publish, and where those are asked for."""

import base64
import json
from http.client import HTTPException

from broker.app.security.key_sources import BadSource, answer_body
from broker.core.security.jwt_rules import JwtRules, checked_header, principal_of
from broker.core.security.key_place import key_url
from broker.core.security.key_refresh import KeyRefresh
from broker.edge.access.jwt.jwt_tokens import JwtTokens
from broker.edge.access.jwt.key_ring import KeyRing
from broker.edge.access.jwt.key_set import BadKeySet, KeySet, read_key_set
from broker.edge.access.jwt.strict_json import json_object
from broker.model.failure import Refused, StreamingCode
from tests.fuzz.choice import numbered, read_by_first_byte

ISSUER, AUDIENCE, NOW_MS = "https://id.example", "tidemark", 1_800_000_000_000
RULES = JwtRules(ISSUER, AUDIENCE, "who.name", "tidemark_roles")
# Points on the curves, of keys that nobody holds.
_KEYS = (
    {
        "kty": "EC",
        "crv": "P-256",
        "kid": "e",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    },
    {
        "kty": "OKP",
        "crv": "Ed25519",
        "kid": "o",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    },
    {"kty": "RSA", "kid": "r", "e": "AQAB", "n": "w" * 341 + "Q"},
)
KEYS: KeySet = read_key_set(json.dumps({"keys": _KEYS}).encode())


def check(data: bytes) -> None:
    """A principal, keys, or the typed error of the reader."""
    read_by_first_byte(data, READERS, (Refused, BadKeySet, BadSource, HTTPException))


def _token(data: bytes) -> None:
    ring = KeyRing(KeyRefresh(300.0), lambda: 0.0)
    ring.adopt(KEYS)
    try:
        found = JwtTokens(RULES, ring)(data.decode("utf-8", "surrogateescape"), NOW_MS)
    except Refused as refused:
        if refused.refusal.code is StreamingCode.NOT_AUTHENTICATED:
            return
        raise AssertionError("another code than that of a bad proof") from refused
    raise AssertionError(f"forged: {found}")


def _parts(data: bytes) -> None:
    """A token of these parts, which a mutation of base64 would not reach."""
    parts = data.split(b"\0", 2)
    _token(b".".join([base64.urlsafe_b64encode(it).rstrip(b"=") for it in parts]))


def _claims(data: bytes) -> None:
    try:
        claims = json_object(data)
    except ValueError:
        return
    found = principal_of(claims, RULES, NOW_MS)
    assert found.name.startswith("jwt:")
    assert found.expires_ms > NOW_MS


def _header(data: bytes) -> None:
    try:
        header = json_object(data)
    except ValueError:
        return
    assert checked_header(header, RULES).algorithm in RULES.algorithms


def _key_set(data: bytes) -> None:
    found = read_key_set(data)
    assert len(found) <= len(found.keys)


def _url(data: bytes) -> None:
    try:
        url = key_url(data.decode("utf-8", "replace"))
    except ValueError:
        return
    if url is not None:
        assert key_url(str(url)) == url


def _answer(data: bytes) -> None:
    for ended in (False, True):
        try:
            answer_body(data, ended=ended)
        except ValueError:
            continue


READERS = (_token, _parts, _claims, _header, _key_set, _url, _answer)

INPUT_BYTES_MAX = 9000
"""More than a token may have."""
_GOOD = {
    "iss": ISSUER,
    "aud": ["a", AUDIENCE],
    "exp": NOW_MS // 1000 + 60,
    "nbf": 1.5,
    "iat": 1,
    "who": {"name": "ann"},
    "tidemark_roles": ["reader"],
}
_HEADER = b'{"alg":"ES256","kid":"e","typ":"at+jwt"}'
SEEDS = numbered(
    (
        b"eyJhbGciOiJFUzI1NiIsImtpZCI6ImUifQ.e30.AAAA",
        _HEADER + b"\0" + json.dumps(_GOOD).encode() + b"\0" + b"s" * 64,
        b'{"alg":"RS256","kid":"r"}\0{}\0' + b"s" * 256,
        b'{"alg":"EdDSA","kid":"o"}\0{}\0' + b"s" * 64,
        json.dumps(_GOOD).encode(),
        _HEADER,
        json.dumps({"keys": _KEYS}).encode(),
        b"https://id.example:443/keys?a=b",
        b"http://[::1]:80/",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    ),
    len(READERS),
)
