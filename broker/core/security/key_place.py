"""Where the keys of an identity provider lie: the setting `jwt_jwks`, a file or a URL."""

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from broker.shown_url import shown_url

URL_LENGTH_MAX: Final = 2048
HAS_USER: Final = "the URL holds a user or a password; keys are public, remove them"


@dataclass(frozen=True, slots=True)
class KeyUrl:
    """A URL that can be asked. `path` has the query, too."""

    secure: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}:{self.port}{self.path}"


def checked_key_place(text: str) -> str:
    """The setting as it is. Raises ValueError for a URL that cannot be used."""
    key_url(text)
    return text


def key_url(text: str) -> KeyUrl | None:
    """The URL of the setting; None for the path of a file. Raises ValueError, saying why."""
    if "://" not in text:
        return None
    if len(text) > URL_LENGTH_MAX or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"a URL has at most {URL_LENGTH_MAX} printable ASCII letters, no spaces")
    shown = shown_url(text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        if shown.has_user:  # the error may quote it
            raise ValueError(HAS_USER) from None
        raise ValueError(f"{shown.text[:80]!r} is no URL: {error}") from None
    host = _host(parts, shown.text[:80])
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return KeyUrl(secure, host, port or (443 if secure else 80), path)


def _host(parts: SplitResult, shown: str) -> str:
    """Nothing of a URL with a password may be shown."""
    if "@" in parts.netloc:
        raise ValueError(HAS_USER)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"{shown!r} must be https://HOST/PATH, or the path of a file")
    if parts.scheme == "http" and not _is_loopback(host):
        raise ValueError(
            f"{shown!r} speaks no TLS, so others could pass keys of their own; use https"
        )
    return host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
