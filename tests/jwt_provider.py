"""An identity provider for tests: keys, the set it publishes, and the tokens it signs."""

import base64
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.api_jws import PyJWS

ISSUER, AUDIENCE = "https://id.example/realm", "tidemark"
NOW_S = 1_800_000_000
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def private_key(algorithm: str, number: int = 0) -> PrivateKey:
    """The same one for the same arguments; RSA algorithms share theirs."""
    return _made_key("RSA" if algorithm[0] in "RP" else algorithm, number)


def ec_private_key() -> ec.EllipticCurvePrivateKey:
    """That of ES256."""
    key = private_key("ES256")
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


@cache
def _made_key(algorithm: str, _: int) -> PrivateKey:
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm in CURVES:
        return ec.generate_private_key(CURVES[algorithm])
    return rsa.generate_private_key(65537, 2048)


def jwk(key_id: str, algorithm: str = "ES256", number: int = 0, **others: Any) -> dict[str, Any]:
    """The public key as a provider publishes it."""
    public = private_key(algorithm, number).public_key()
    if isinstance(public, rsa.RSAPublicKey):
        made = RSAAlgorithm.to_jwk(public, as_dict=True)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        made = ECAlgorithm.to_jwk(public, as_dict=True)
    else:
        made = OKPAlgorithm.to_jwk(public, as_dict=True)
    return {**made, "kid": key_id, "use": "sig", **others}


def key_set(*keys: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def claims(**others: Any) -> dict[str, Any]:
    """Valid at NOW_S, for an hour; None leaves a claim out."""
    given = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "iat": NOW_S,
        "exp": NOW_S + 3600,
        "tidemark_roles": ["reader"],
    }
    return {name: it for name, it in {**given, **others}.items() if it is not None}


def token(
    payload: Mapping[str, Any] | bytes,
    key_id: str = "k1",
    algorithm: str = "ES256",
    number: int = 0,
    headers: Mapping[str, Any] | None = None,
) -> str:
    """Signed by the key of this algorithm and number."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    named = {"kid": key_id, **(headers or {})}
    return PyJWS().encode(data, private_key(algorithm, number), algorithm, named)


def part(value: object) -> str:
    """A part of a token by hand."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed_by_hand(header: object, payload: object) -> str:
    """With any header and payload, and an ES256 signature that fits them."""
    text = f"{part(header)}.{part(payload)}"
    signature = ECAlgorithm(ECAlgorithm.SHA256).sign(text.encode(), ec_private_key())
    return f"{text}.{part(signature)}"
