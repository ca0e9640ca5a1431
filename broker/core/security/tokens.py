"""Tokens of users: `tm_<id>_<secret>`. Of the secret only a salted hash is kept.

Why one SHA-256 is enough: a secret has 256 random bits, so nobody can try them all. Slow hashes
are for passwords, which people choose.
"""

import hmac
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

PREFIX: Final = "tm_"
"""Tokens that begin like this are ours; others belong to other ways to prove who one is."""
SECRET_LENGTH_MIN: Final = 43
TOKEN_LENGTH_MAX: Final = 256
_ID_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_HASHED: Final = "sha256"
_HASH: Final = re.compile(
    rf"{_HASHED}:([a-z0-9]{{1,64}}):((?:[0-9a-f]{{2}}){{16,64}}):([0-9a-f]{{64}})"
)


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What is kept of a token. `expires_ms`: Unix milliseconds; 0: never."""

    id: str
    user: str
    salt: bytes
    digest: bytes
    made_ms: int
    expires_ms: int = 0
    note: str = ""

    def fits(self, secret: str) -> bool:
        """Whether this is its secret; takes as long for each wrong one."""
        return hmac.compare_digest(self.digest, digest_of(self.salt, secret))

    def expired(self, now_ms: int) -> bool:
        """Whether it is too late to use it."""
        return 0 < self.expires_ms <= now_ms


@dataclass(frozen=True, slots=True)
class TokenText:
    """The parts of a token; the secret is in no `repr`, and so in no log."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"TokenText({self.id!r}, ...)"

    @property
    def text(self) -> str:
        """As its user gets it."""
        return f"{PREFIX}{self.id}_{self.secret}"


def read_token(text: str) -> TokenText | None:
    """The parts of a token; None for what has not the form of one."""
    if not text.startswith(PREFIX) or len(text) > TOKEN_LENGTH_MAX:
        return None
    id, _, secret = text.removeprefix(PREFIX).partition("_")
    if not id or not _ID_CHARACTERS.issuperset(id) or len(secret) < SECRET_LENGTH_MIN:
        return None
    return TokenText(id, secret)


def hash_text(token: StoredToken) -> str:
    """What is kept of the token's secret, as one line: `sha256:ID:SALT:DIGEST`, in hex."""
    return f"{_HASHED}:{token.id}:{token.salt.hex()}:{token.digest.hex()}"


def read_hash(text: str, user: str, made_ms: int, note: str) -> StoredToken | None:
    """The token of a `hash_text`; None for what has not the form of one."""
    found = _HASH.fullmatch(text)
    if found is None:
        return None
    id, salt, digest = found.groups()
    return StoredToken(id, user, bytes.fromhex(salt), bytes.fromhex(digest), made_ms, note=note)


def digest_of(salt: bytes, secret: str) -> bytes:
    """What is stored of a secret."""
    return sha256(salt + secret.encode("utf-8", "surrogatepass")).digest()
