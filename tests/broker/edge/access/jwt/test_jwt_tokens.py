"""Tokens of all algorithms, and hostile ones: each is refused by the check that it names."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import HMACAlgorithm

from broker.core.security.jwt_rules import ALGORITHMS, JwtRules
from broker.core.security.key_refresh import KeyRefresh
from broker.edge.access.jwt.jwt_tokens import CHECKED_MAX, TOKEN_LENGTH_MAX, JwtTokens
from broker.edge.access.jwt.key_ring import KeyRing
from broker.edge.access.jwt.key_set import read_key_set
from broker.model.failure import Refused, StreamingCode
from tests.jwt_provider import (
    AUDIENCE,
    ISSUER,
    NOW_S,
    claims,
    jwk,
    key_set,
    part,
    private_key,
    signed_by_hand,
    token,
)

NOW_MS = NOW_S * 1000
RULES = JwtRules(ISSUER, AUDIENCE)
KINDS = {"rsa": "RS256", "k1": "ES256", "p384": "ES384", "p521": "ES512", "ed": "EdDSA"}


def tokens(*keys: dict[str, Any]) -> JwtTokens:
    ring = KeyRing(KeyRefresh(300.0), lambda: 0.0)
    ring.begin()
    ring.adopt(read_key_set(key_set(*keys)))
    ring.end()
    return JwtTokens(RULES, ring)


TOKENS = tokens(*[jwk(id, kind) for id, kind in KINDS.items()])


def refusal(text: str) -> str:
    with pytest.raises(Refused) as error:
        TOKENS(text, NOW_MS)
    refused = error.value.refusal
    assert refused.code is StreamingCode.NOT_AUTHENTICATED
    assert error.value.__cause__ is None
    assert len(refused.cause) < 400
    # Nothing of the token is told.
    assert not [it for it in text.split(".") if len(it) > 8 and it[:24] in refused.cause]
    return refused.cause


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_each_algorithm_names_its_user(algorithm: str) -> None:
    kind = "RS256" if algorithm[0] in "RP" else algorithm
    (key_id,) = [id for id, it in KINDS.items() if it == kind]
    found = TOKENS(token(claims(), key_id, algorithm), NOW_MS)
    assert (found.name, found.roles) == ("jwt:ann", ("reader",))
    assert found.expires_ms == NOW_MS + 3_600_000


def _hs256_with(secret: bytes, algorithm: str = "HS256") -> str:
    text = f"{part({'alg': algorithm, 'kid': 'rsa'})}.{part(claims())}"
    return f"{text}.{part(HMACAlgorithm(HMACAlgorithm.SHA256).sign(text.encode(), secret))}"


def _public_pem() -> bytes:
    public = private_key("RS256").public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _with_last_bit(signed: str) -> str:
    """The same bytes to a lenient reader of base64."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return signed[:-1] + alphabet[alphabet.index(signed[-1]) ^ 1]


HEADER = {"alg": "ES256", "kid": "k1"}
GOOD = token(claims())
FIRST, SECOND, THIRD = GOOD.split(".")
EVIL = jwk("k1", number=9)
OF_EVIL = {"number": 9}

HOSTILE: dict[str, tuple[str, str]] = {
    "no algorithm": (f"{part({'alg': 'none', 'kid': 'k1'})}.{SECOND}.", "form"),
    "no algorithm, signed": (f"{part({'alg': 'none', 'kid': 'k1'})}.{SECOND}.AA", "`alg`"),
    "no algorithm in capitals": (f"{part({'alg': 'NONE', 'kid': 'k1'})}.{SECOND}.AA", "`alg`"),
    "HS256 by the public key": (_hs256_with(_public_pem()), "`alg`"),
    "HS256 by the key set": (_hs256_with(key_set(jwk("rsa", "RS256"))), "`alg`"),
    "HS256 that says RS256": (_hs256_with(_public_pem(), "RS256"), "not signed with the key"),
    "another key": (token(claims(), number=9), "not signed with the key"),
    "another kind of key": (token(claims(), "p384"), "its key is not for"),
    "an RSA algorithm and an EC key": (token(claims(), "k1", "RS256"), "its key is not for"),
    "an unknown key": (token(claims(), "k2"), "`kid`"),
    "a key by path": (token(claims(), "../../keys/k1"), "`kid`"),
    "a key by device": (token(claims(), "/dev/null"), "`kid`"),
    "a key by URL": (token(claims(), "https://evil.example/k1"), "`kid`"),
    "a key by query": (token(claims(), "k1' OR '1'='1"), "`kid`"),
    "a key with a zero": (token(claims(), "k1\0"), "`kid`"),
    "no key": (token(claims(), headers={"kid": ""}), "`kid`"),
    "its own key set": (
        token(claims(), headers={"jku": "https://evil.example/k"}, **OF_EVIL),  # type: ignore[arg-type]
        "not signed with the key",
    ),
    "its own key": (token(claims(), headers={"jwk": EVIL}, **OF_EVIL), "not signed with the key"),  # type: ignore[arg-type]
    "its own certificate": (
        token(claims(), headers={"x5u": "https://evil.example/c", "x5c": ["AA"]}, **OF_EVIL),  # type: ignore[arg-type]
        "not signed with the key",
    ),
    "critical extensions": (signed_by_hand({**HEADER, "crit": ["x"], "x": 1}, claims()), "`crit`"),
    "a detached payload": (signed_by_hand({**HEADER, "b64": False}, claims()), "not allowed"),
    "expired": (token(claims(exp=NOW_S)), "expired"),
    "valid later": (token(claims(nbf=NOW_S + 61)), "`nbf`"),
    "issued later": (token(claims(iat=NOW_S + 61)), "`iat`"),
    "another audience": (token(claims(aud="others")), "`aud`"),
    "another issuer": (token(claims(iss=ISSUER + "/")), "`iss`"),
    "no expiry": (token(claims(exp=None)), "`exp`"),
    "no user": (token(claims(sub=None)), "'sub'"),
    "too long": (token(claims(filler="a" * TOKEN_LENGTH_MAX)), "over 8192 characters"),
    "nothing": ("", "form"),
    "a point": (".", "form"),
    "two parts": (f"{FIRST}.{SECOND}", "form"),
    "four parts": (f"{GOOD}.{THIRD}", "form"),
    "five parts, as encrypted ones": ("a.b.c.d.e", "form"),
    "a serialized one": (json.dumps({"payload": SECOND}), "form"),
    "no signature": (f"{FIRST}.{SECOND}.", "form"),
    "no base64": (f"{FIRST}.{SECOND}.a$b", "form"),
    "base64 of another alphabet": (f"{FIRST}.{SECOND}.a+b/", "form"),
    "base64 with padding": (f"{FIRST}==.{SECOND}.{THIRD}", "form"),
    "base64 of no length": (f"{FIRST}.{SECOND}.A", "no base64url"),
    "a header of no length": (f"A.{SECOND}.{THIRD}", "header that cannot be read"),
    "spare bits": (_with_last_bit(GOOD), "no base64url"),
    "a changed signature": (f"{FIRST}.{SECOND}.{part(b'0' * 64)}", "not signed with the key"),
    "a DER signature": (f"{FIRST}.{SECOND}.{part(b'0' * 70)}", "not signed with the key"),
    "a signature of zeros": (f"{FIRST}.{SECOND}.{part(bytes(64))}", "not signed with the key"),
    "other claims": (f"{FIRST}.{part(claims(sub='eve'))}.{THIRD}", "not signed with the key"),
    "letters that are no ASCII": (GOOD.replace("e", "\u0435"), "form"),
    "a line": (GOOD + "\n", "form"),
    "a header twice": (
        signed_by_hand(b'{"alg":"none","alg":"ES256","kid":"k1"}', claims()),
        "stands twice",
    ),
    "a claim twice": (
        signed_by_hand(HEADER, json.dumps(claims())[:-1].encode() + b',"sub":"eve"}'),
        "stands twice",
    ),
    "a deep header": (signed_by_hand(b'{"a":' * 900, b"{}"), "header that cannot be read"),
    "deep claims": (signed_by_hand(HEADER, b'{"a":' * 900 + b"1" + b"}" * 900), "deep"),
    "deep lists": (signed_by_hand(HEADER, b"[" * 5000), "deep"),
    "a long number": (signed_by_hand(HEADER, b'{"exp":' + b"9" * 5000 + b"}"), "no JSON"),
    "a header that is a list": (signed_by_hand([], claims()), "no JSON object"),
    "claims that are a list": (signed_by_hand(HEADER, []), "no JSON object"),
    "claims in UTF-16": (signed_by_hand(HEADER, json.dumps(claims()).encode("utf-16")), "UTF-8"),
    "claims that are a token": (signed_by_hand({**HEADER, "cty": "JWT"}, GOOD.encode()), "no JSON"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_token_is_refused_and_the_check_is_named(name: str) -> None:
    text, words = HOSTILE[name]
    assert words in refusal(text)


def test_the_good_token_differs_from_the_hostile_ones_in_nothing_else() -> None:
    assert TOKENS(GOOD, NOW_MS).name == "jwt:ann"
    assert TOKENS(signed_by_hand(HEADER, claims()), NOW_MS).name == "jwt:ann"
    extras = {"jku": "https://evil.example/k", "jwk": EVIL, "x5u": "https://evil.example/c"}
    assert TOKENS(token(claims(), headers=extras), NOW_MS).name == "jwt:ann"


def _changed(text: str) -> Iterator[str]:
    for at in range(len(text)):
        for letter in "Aa0-_.":
            if text[at] != letter:
                yield text[:at] + letter + text[at + 1 :]


def test_no_changed_letter_of_a_token_is_accepted() -> None:
    for text in _changed(GOOD):
        with pytest.raises(Refused):
            TOKENS(text, NOW_MS)


@given(st.text(max_size=200) | st.from_regex(r"[A-Za-z0-9_-]{1,40}(\.[A-Za-z0-9_-]{1,40}){2}"))
def test_no_text_gets_anything_but_a_refusal(text: str) -> None:
    with pytest.raises(Refused) as error:
        TOKENS(text, NOW_MS)
    assert error.value.refusal.code is StreamingCode.NOT_AUTHENTICATED


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jku", "zip"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.lists(st.text()),
    ),
    st.binary(max_size=100),
)
def test_no_signed_bytes_get_anything_but_a_refusal(header: dict[str, Any], data: bytes) -> None:
    with pytest.raises(Refused):
        TOKENS(signed_by_hand({**HEADER, **header}, data), NOW_MS)


def test_a_token_is_checked_again_when_keys_change_and_when_it_expires() -> None:
    made = tokens(jwk("k1"))
    assert made(GOOD, NOW_MS) is made(GOOD, NOW_MS)
    with pytest.raises(Refused, match="expired"):
        made(GOOD, NOW_MS + 3_600_000)
    assert made(GOOD, NOW_MS).name == "jwt:ann"
    made._ring.adopt(read_key_set(key_set(jwk("k1", number=1))))
    with pytest.raises(Refused, match="not signed with the key"):
        made(GOOD, NOW_MS)
    made._ring.adopt(read_key_set(key_set(jwk("k1"))))
    assert made(GOOD, NOW_MS).name == "jwt:ann"


def test_the_checked_tokens_are_bounded() -> None:
    made = tokens(jwk("k1"))
    for number in range(CHECKED_MAX + 1):
        made(token(claims(sub=f"user{number}")), NOW_MS)
        assert len(made._checked) <= CHECKED_MAX
    assert made(GOOD, NOW_MS).name == "jwt:ann"


def test_padding_of_the_header_does_not_matter_to_its_reader() -> None:
    for filler in range(4):
        signed = token(claims(), headers={"x": "a" * filler})
        assert len(base64.urlsafe_b64decode(signed.split(".")[0] + "===")) > 0
        assert TOKENS(signed, NOW_MS).name == "jwt:ann"
