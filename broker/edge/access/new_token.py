"""Makes tokens from the system's randomness."""

import secrets
from typing import Final

from broker.core.security.tokens import StoredToken, TokenText, digest_of

ID_BYTES: Final = 6
SECRET_BYTES: Final = 32
SALT_BYTES: Final = 16


def new_token(
    user: str, made_ms: int, expires_ms: int = 0, note: str = ""
) -> tuple[str, StoredToken]:
    """A token of a user: its text, and what is stored of it."""
    given = TokenText(secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES))
    salt = new_salt()
    digest = digest_of(salt, given.secret)
    return given.text, StoredToken(given.id, user, salt, digest, made_ms, expires_ms, note)


def new_salt() -> bytes:
    """What is hashed with a secret, so that equal secrets have different hashes."""
    return secrets.token_bytes(SALT_BYTES)
