"""Proofs that prove nothing: large, many, forged, nested deep, of keys that nobody publishes."""

import json
from collections.abc import Iterator
from itertools import count, cycle, repeat
from typing import Any

from broker.core.security.tokens import TokenText
from tests.jwt_provider import AUDIENCE, ISSUER, part
from tests.limits.hostile.attack import Got, Target
from tests.limits.hostile.hostile_caller import HostileCall, call_on
from tests.limits.hostile.hostile_requests import unary

WHO_AM_I = "/tidemark.v1.Auth/WhoAmI"
TOKEN_CHARACTERS = 12_000
"""The headers of a call may have 16 KiB."""
SECONDS = 1 << 34
HEADER = {"alg": "ES256", "kid": "e"}
GOOD = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": SECONDS, "tidemark_roles": ["admin"]}


def _showing(token: str) -> HostileCall:
    return unary(WHO_AM_I, b"", (("authorization", f"Bearer {token}"),))


async def huge_tokens(target: Target, got: Got) -> None:
    """Of 12,000 characters, in all forms."""
    long = "a" * TOKEN_CHARACTERS
    head = part({"alg": "ES256", "kid": "e"})
    texts = (f"tm_{long}", f"tm_a_{long}", long, f"{head}.{long}.{long[:4]}", "." * len(long))
    await call_on(target, got, map(_showing, cycle(texts)))


async def wrong_tokens(target: Target, got: Got) -> None:
    """Well formed, another one each time, as fast as they go."""
    texts = (TokenText(f"t{number}", f"{number:043d}").text for number in count())
    await call_on(target, got, map(_showing, texts))


async def hostile_jwts(target: Target, got: Got) -> None:
    """Without a signature, by a secret, nested deep, with enormous numbers and repeated names."""
    texts = [f"{part(header)}.{part(claims)}.{part(b's' * 64)}" for header, claims in _hostile()]
    texts += [f"{part({'alg': 'none'})}.{part(GOOD)}.", "..", "a.b.c", f"{part({})}.{part({})}"]
    await call_on(target, got, map(_showing, cycle(texts)))


async def signed_jwts(target: Target, got: Got) -> None:
    """With the signature of the provider, and claims that no provider makes by itself."""
    await call_on(target, got, map(_showing, cycle(target.signed)))


def hostile_claims() -> Iterator[Any]:
    """Claims, as JSON or as bytes, which must prove nothing whoever has signed them."""
    good = json.dumps(GOOD).encode()[:-1]
    nested = b"[" * 1000 + b"]" * 1000
    yield good + b',"x":' + nested + b"}"
    yield good + b',"x":' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}"
    for number in (b"1" + b"0" * 4400, b"1e400", b"-1", b"NaN", b"true", b'"9"', b"[9]", b"null"):
        yield good.replace(str(SECONDS).encode(), number) + b"}"
    yield good + b',"exp":1}'
    yield good + b',"nbf":1e11}'
    yield b"[]"
    yield b"\xff"
    for name in ("", " ", "a\0b", "x\nforged", "\u202ex", "\ud800", "x" * 256, 5, None, ["ann"]):
        yield {**GOOD, "sub": name}
    for roles in ([f"r{number}" for number in range(300)], {"admin": 1}, [["admin"]], 1):
        yield {**GOOD, "tidemark_roles": roles}
    for other in ({"iss": [ISSUER]}, {"aud": "tidemark\0"}, {"aud": [[AUDIENCE]]}, {"iss": None}):
        yield {**GOOD, **other}


def _hostile() -> Iterator[tuple[Any, Any]]:
    for algorithm in ("none", "None", "HS256", "ES256K", "", None, 1, ["ES256"], {"a": 1}):
        yield {"alg": algorithm, "kid": "e"}, GOOD
    nested = b"[" * 3000 + b"]" * 3000
    yield b'{"alg":' + nested + b"}", GOOD
    yield b'{"alg":"ES256","kid":"e","x":' + nested + b"}", GOOD
    yield b'{"a":' * 1000 + b"1" + b"}" * 1000, GOOD
    yield HEADER, b'{"exp":' + nested + b"}"
    for number in (b"1" + b"0" * 5000, b"-1e99999", b"1e309", b"NaN", b"-Infinity", b"0" * 5000):
        yield b'{"alg":"ES256","kid":"e","x":' + number + b"}", GOOD
        yield {"alg": "ES256", "kid": "e"}, b'{"exp":' + number + b"}"
    yield b'{"alg":"none","alg":"ES256","kid":"e"}', GOOD
    for more in ({"jku": "http://127.0.0.1:1/keys"}, {"crit": ["exp"]}, {"b64": False, "crit": []}):
        yield {"alg": "ES256", "kid": "e", **more}, GOOD
    for kid in ("../../etc/passwd", "a\0b", "e' OR '1'='1", "\ud800", "x" * 255, ["e"], None):
        yield {"alg": "ES256", "kid": kid}, GOOD
    yield b"\xff\xfe" + json.dumps({"alg": "ES256"}).encode("utf-16-le"), GOOD
    yield {"alg": "ES256", "kid": "e", **{f"n{it}": it for it in range(250)}}, GOOD


async def forged_jwts(target: Target, got: Got) -> None:
    """Of a key that is published, each with another signature, which has to be checked."""
    heads = [
        (f"{part({'alg': algorithm, 'kid': kid})}.{part(GOOD)}.", size)
        for algorithm, kid, size in (("ES256", "e", 64), ("RS256", "r", 256), ("EdDSA", "o", 64))
    ]
    texts = (
        head + part(number.to_bytes(size, "big")) for number in count(1) for head, size in heads
    )
    await call_on(target, got, map(_showing, texts))


async def unknown_keys(target: Target, got: Got) -> None:
    """Each of another key, which could be a new one: the provider could be asked every time."""
    texts = (
        f"{part({'alg': 'ES256', 'kid': f'k{number}'})}.{part(GOOD)}.{part(b's' * 64)}"
        for number in count()
    )
    await call_on(target, got, map(_showing, texts))


async def wrong_secrets(target: Target, got: Got) -> None:
    """The secret of the cluster's processes, guessed."""
    metadata = (("tidemark-process", "0" * 64),)
    calls = (unary(WHO_AM_I, b"", metadata) for _ in repeat(None))
    await call_on(target, got, calls)
