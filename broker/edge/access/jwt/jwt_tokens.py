"""From a JWT to whom it names: size, form, key, signature, claims, in this order.

PyJWT checks signatures: of the kept libraries (joserfc, jwcrypto) the one that most others use,
with nothing below it but cryptography. It is given one key and one algorithm, and no claims: it
would compare those with a clock of its own.
"""

import base64
import re
from hashlib import sha256
from typing import Final

from jwt.api_jws import PyJWS
from jwt.exceptions import InvalidSignatureError, PyJWTError

from broker.core.security.access_book import Principal
from broker.core.security.jwt_rules import (
    ALGORITHMS,
    JwtHeader,
    JwtRules,
    bad_jwt,
    checked_header,
    principal_of,
)
from broker.edge.access.jwt.key_ring import KeyRing
from broker.edge.access.jwt.key_set import PublicKey, fingerprint
from broker.edge.access.jwt.strict_json import json_object
from broker.model.failure import Refusal, Refused

TOKEN_LENGTH_MAX: Final = 8 * 1024
CHECKED_MAX: Final = 1024
"""Tokens that need no second check of their signature, which costs as much as a small call."""
_FORM: Final = re.compile(r"([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_KEY_GONE: Final = bad_jwt(
    "is signed with a key that the identity provider withdrew while the call was open; get a new"
    " one"
).refusal
# It knows no other algorithm, so none can be taken for one of these.
_SIGNATURES: Final = PyJWS(algorithms=ALGORITHMS)


class JwtTokens:
    """One for a process; see OtherTokens."""

    def __init__(self, rules: JwtRules, ring: KeyRing) -> None:
        self._rules = rules
        self._ring = ring
        self._checked_by = ring.keys
        # By the digest of a token: secrets are not kept. Only a valid one gets in.
        self._checked: dict[bytes, Principal] = {}

    def __call__(self, token: str, now_ms: int) -> Principal:
        """See OtherTokens. Raises Refused(NOT_AUTHENTICATED), which says which check failed."""
        if self._checked_by is not self._ring.keys:
            self._checked_by = self._ring.keys
            self._checked.clear()
        # Hashed before its size is checked: the gate lets no longer header through than 16 KiB.
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._checked.get(digest)
        if known is not None and now_ms < known.expires_ms:
            return known
        found = self._check(token, now_ms)
        if len(self._checked) >= CHECKED_MAX:
            self._checked.clear()
        self._checked[digest] = found
        return found

    def _check(self, token: str, now_ms: int) -> Principal:
        header = read_header(token, self._rules)
        key = self._ring.keys.find(header)
        payload = _signed(token, header, key)
        try:
            claims = json_object(payload)
        except ValueError as error:
            raise bad_jwt(f"has claims that cannot be read: {error}") from None
        return principal_of(claims, self._rules, now_ms, fingerprint(header, key))

    def lost(self, principal: Principal) -> Refusal | None:
        """See OtherTokens: the key that signed the token may be published no longer."""
        return None if principal.token in self._ring.keys.fingerprints else _KEY_GONE

    async def prepare(self, token: str) -> None:
        """See OtherTokens: read the keys again when this one is signed with another."""
        try:
            header = read_header(token, self._rules)
        except Refused:
            return  # refused again, when it is used
        await self._ring.until_known(header.key_id)


def read_header(token: str, rules: JwtRules) -> JwtHeader:
    """The header, of which nothing is proven yet. Raises Refused(NOT_AUTHENTICATED)."""
    if len(token) > TOKEN_LENGTH_MAX:
        raise bad_jwt(
            f"has over {TOKEN_LENGTH_MAX} characters; make the identity provider put fewer claims"
            " into it"
        )
    form = _FORM.fullmatch(token)
    if form is None:
        raise bad_jwt("has not the form of one, three texts in base64url with dots between")
    text = form[1]
    try:
        header = json_object(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError as error:
        raise bad_jwt(f"has a header that cannot be read: {error}") from None
    return checked_header(header, rules)


def _signed(token: str, header: JwtHeader, key: PublicKey) -> bytes:
    """The claims, after the signature was checked."""
    try:
        payload = _SIGNATURES.decode(token, key, [header.algorithm])
    except InvalidSignatureError:
        raise bad_jwt("is not signed with the key that it names, or was changed") from None
    except PyJWTError:
        raise bad_jwt("has a part that is no base64url, or a header that is not allowed") from None
    assert isinstance(payload, bytes), "the payload is not detached"
    return payload
