"""Which published keys are used, and why others are not."""

import itertools
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from broker.core.security.jwt_rules import ALGORITHMS, JwtHeader
from broker.edge.access.jwt.key_set import (
    KEY_SET_BYTES_MAX,
    KEYS_MAX,
    BadKeySet,
    read_key_set,
)
from broker.model.failure import Refused
from tests.jwt_provider import ec_private_key, jwk, key_set, private_key


def ids(*keys: object) -> frozenset[str]:
    return read_key_set(json.dumps({"keys": keys}).encode()).ids


def ignored(*keys: object) -> str:
    found = read_key_set(json.dumps({"keys": keys}).encode())
    assert not found
    (because,) = found.ignored
    return because


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_is_found_by_its_id_and_algorithm(algorithm: str) -> None:
    kind = "RS256" if algorithm[0] in "RP" else algorithm
    keys = read_key_set(key_set(jwk("old", kind), jwk("new", kind, 1)))
    assert keys.ids == {"old", "new"}
    assert not keys.ignored
    assert keys.find(JwtHeader(algorithm, "old")) == private_key(kind).public_key()
    assert keys.find(JwtHeader(algorithm, "new")) == private_key(kind, 1).public_key()


def test_a_key_that_is_not_published_is_told_from_a_wrong_algorithm() -> None:
    keys = read_key_set(key_set(jwk("k1"), jwk("k2", "RS256", alg="RS384")))
    with pytest.raises(Refused, match="does not publish"):
        keys.find(JwtHeader("ES256", "k3"))
    for header in (JwtHeader("RS256", "k1"), JwtHeader("RS256", "k2"), JwtHeader("PS384", "k2")):
        with pytest.raises(Refused, match="its key is not for"):
            keys.find(header)
    keys.find(JwtHeader("RS384", "k2"))


def without(given: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: it for key, it in given.items() if key != name}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("text", "key number 1 is ignored: it is no JSON object"),
        (without(jwk("k"), "kid"), "no ID"),
        (jwk(""), "no ID"),
        (jwk("k" * 257), "no ID"),
        (jwk("k", use="enc"), "not for signatures"),
        (jwk("k", key_ops=["sign"]), "not for checking"),
        (jwk("k", key_ops="verify"), "not for checking"),
        (jwk("k", kty="oct"), "only RSA"),
        ({"kid": "k", "kty": "oct", "k": "c2VjcmV0"}, "it is a secret"),
        (jwk("k", alg="HS256"), "none of ES256"),
        (jwk("k", alg="none"), "none of ES256"),
        (jwk("k", "RS256", alg="ES256"), "none of RS256"),
        (jwk("k", alg=["ES256"]), "none of ES256"),
        (jwk("k", crv="secp256k1"), "only RSA"),
        (jwk("k", crv=["P-256"]), "only RSA"),
        (jwk("k", "EdDSA", crv="Ed448"), "only RSA"),
        (jwk("k", x="AAAA"), "no key"),
        (jwk("k", x=5), "no key"),
        (jwk("k", y="!"), "no key"),
        (without(jwk("k", "RS256"), "n"), "no key"),
        (jwk("k", "RS256", e="AA"), "no key"),
        (jwk("k", "EdDSA", x="AAAA"), "no key"),
    ],
)
def test_a_key_that_does_not_fit_is_ignored_with_a_reason(key: object, words: str) -> None:
    assert words in ignored(key)


def of_bits(bits: int) -> dict[str, Any]:
    public = rsa.generate_private_key(65537, bits).public_key()
    return {**RSAAlgorithm.to_jwk(public, as_dict=True), "kid": "small"}


def test_short_rsa_keys_are_ignored() -> None:
    assert "it has 1024 bits; 2048 to 8192 are used" in ignored(of_bits(1024))


def test_huge_rsa_keys_and_exponents_are_ignored() -> None:
    def number(bits: int) -> str:
        made = RSAAlgorithm.to_jwk(
            rsa.RSAPublicNumbers(65537, (1 << bits) - 159).public_key(), as_dict=True
        )
        text = made["n"]
        assert isinstance(text, str)
        return text

    assert "bits; 2048" in ignored({**jwk("k", "RS256"), "n": number(16384)})
    assert "its exponent has over 32 bits" in ignored({**jwk("k", "RS256"), "e": "Af____8"})


def test_a_private_key_is_ignored_and_called_a_secret() -> None:
    private = ECAlgorithm.to_jwk(ec_private_key(), as_dict=True)
    assert "it is a secret, which must never be published" in ignored({**private, "kid": "k"})


def test_of_two_keys_with_one_id_the_first_holds_unless_they_differ_in_kind() -> None:
    found = read_key_set(key_set(jwk("k"), jwk("k", number=1), jwk("k", "EdDSA")))
    assert found.find(JwtHeader("ES256", "k")) == private_key("ES256").public_key()
    assert found.find(JwtHeader("EdDSA", "k")) == private_key("EdDSA").public_key()
    assert found.ignored == ("key 'k' is ignored: another key has its ID",)


def test_unfit_keys_do_not_hide_fit_ones() -> None:
    assert ids(5, jwk("bad", use="enc"), jwk("good")) == {"good"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no JSON"),
        (b"<html>", "no JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "no list `keys`"),
        (b'{"keys": {}}', "no list `keys`"),
        (b'{"keys": [], "keys": []}', "stands twice"),
        (key_set(*[jwk(f"k{it}") for it in range(KEYS_MAX + 1)]), "it has 101 keys"),
        (b" " * (KEY_SET_BYTES_MAX + 1), "it has over 262144 bytes"),
    ],
    ids=itertools.count(),
)
def test_what_is_no_key_set_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(BadKeySet, match=words):
        read_key_set(data)


def test_a_set_without_keys_is_one() -> None:
    assert len(read_key_set(b'{"keys": []}')) == 0
