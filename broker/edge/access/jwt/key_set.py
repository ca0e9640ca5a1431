"""The public keys of an identity provider, as it publishes them: a JSON Web Key Set (RFC 7517)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.api_jwk import PyJWK
from jwt.exceptions import PyJWTError

from broker.core.security.jwt_rules import KEY_ID_LENGTH_MAX, JwtHeader, bad_jwt
from broker.edge.access.jwt.strict_json import json_object

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

KEY_SET_BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
"""A check with a larger key takes long, and every call has one."""
EXPONENT_BITS_MAX: Final = 32
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


class BadKeySet(Exception):
    """What was published is no key set; says why."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys by ID and algorithm. `ignored`: why others are not used, a sentence each."""

    keys: Mapping[tuple[str, str], PublicKey] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    fingerprints: frozenset[str] = field(init=False, compare=False)
    """Of each key with its ID and algorithm: a token of another one would be refused."""

    def __post_init__(self) -> None:
        found = frozenset(
            [fingerprint(JwtHeader(it[1], it[0]), key) for it, key in self.keys.items()]
        )
        object.__setattr__(self, "fingerprints", found)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ids(self) -> frozenset[str]:
        """The IDs of all keys."""
        return frozenset([id for id, _ in self.keys])

    def find(self, header: JwtHeader) -> PublicKey:
        """The key that a token says it was signed with. Raises Refused(NOT_AUTHENTICATED)."""
        found = self.keys.get((header.key_id, header.algorithm))
        if found is not None:
            return found
        if header.key_id in self.ids:
            raise bad_jwt("names an algorithm (header `alg`) that its key is not for")
        raise bad_jwt(
            "is signed with a key (header `kid`) that the identity provider of this broker does not"
            " publish; get a new one"
        )


def read_key_set(data: bytes) -> KeySet:
    """The keys that can be used. Raises BadKeySet."""
    if len(data) > KEY_SET_BYTES_MAX:
        raise BadKeySet(f"it has over {KEY_SET_BYTES_MAX} bytes")
    try:
        found = json_object(data).get("keys")
    except ValueError as error:
        raise BadKeySet(str(error)) from None
    if not isinstance(found, list):
        raise BadKeySet("it has no list `keys`")
    if len(found) > KEYS_MAX:
        raise BadKeySet(f"it has {len(found)} keys; at most {KEYS_MAX} are read")
    keys: dict[tuple[str, str], PublicKey] = {}
    ignored = []
    for number, jwk in enumerate(found):
        try:
            _add(keys, jwk)
        except _Unfit as unfit:
            ignored.append(f"key {_shown(jwk, number)} is ignored: {unfit}")
    return KeySet(keys, tuple(ignored))


def fingerprint(header: JwtHeader, key: PublicKey) -> str:
    """Another one for another key, and for another ID or algorithm of the same key."""
    body = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    named = f"{header.algorithm} {header.key_id} ".encode("utf-8", "surrogatepass")
    return sha256(named + body).hexdigest()


class _Unfit(Exception):
    """A key that is not used; says why."""


def _add(keys: dict[tuple[str, str], PublicKey], jwk: object) -> None:
    if not isinstance(jwk, dict):
        raise _Unfit("it is no JSON object")
    id = jwk.get("kid")
    if not isinstance(id, str) or not 0 < len(id) <= KEY_ID_LENGTH_MAX:
        raise _Unfit("it has no ID (`kid`), by which tokens name it")
    algorithms = _algorithms(jwk)
    key = _public_key(jwk, algorithms[0])
    if any((id, it) in keys for it in algorithms):
        raise _Unfit("another key has its ID")
    keys.update(dict.fromkeys([(id, it) for it in algorithms], key))


def _algorithms(jwk: Mapping[str, Any]) -> tuple[str, ...]:
    """What signatures it may check; a key that says its algorithm is for no other one."""
    if jwk.get("use", "sig") != "sig":
        raise _Unfit("it is not for signatures (`use`)")
    uses = jwk.get("key_ops", ["verify"])
    if not isinstance(uses, list) or "verify" not in uses:
        raise _Unfit("it is not for checking signatures (`key_ops`)")
    if "d" in jwk or "k" in jwk:
        raise _Unfit("it is a secret, which must never be published; replace it at the provider")
    fit: tuple[str, ...]
    match jwk.get("kty"), jwk.get("crv"):
        case "RSA", _:
            fit = _RSA
        case "EC", str(curve) if curve in _CURVES:
            fit = (_CURVES[curve],)
        case "OKP", "Ed25519":
            fit = ("EdDSA",)
        case _:
            raise _Unfit("only RSA, the curves P-256, P-384 and P-521, and Ed25519 are supported")
    only = jwk.get("alg", fit[0])
    if only not in fit:
        raise _Unfit(f"its algorithm (`alg`) is none of {', '.join(fit)}")
    return (only,) if "alg" in jwk else fit


def _public_key(jwk: Mapping[str, Any], algorithm: str) -> PublicKey:
    try:
        key = PyJWK(dict(jwk), algorithm).key
    # The library lets through what its parts raise.
    except (PyJWTError, ValueError, TypeError, ArithmeticError, AttributeError, KeyError):
        raise _Unfit("its numbers are no key") from None
    if not isinstance(key, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey):
        raise _Unfit("it is no public key")
    if isinstance(key, RSAPublicKey):
        if not RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
            raise _Unfit(f"it has {key.key_size} bits; {RSA_BITS_MIN} to {RSA_BITS_MAX} are used")
        if key.public_numbers().e.bit_length() > EXPONENT_BITS_MAX:
            raise _Unfit(f"its exponent has over {EXPONENT_BITS_MAX} bits")
    return key


def _shown(jwk: object, number: int) -> str:
    id = jwk.get("kid") if isinstance(jwk, dict) else None
    return repr(id[:40]) if isinstance(id, str) else f"number {number + 1}"
