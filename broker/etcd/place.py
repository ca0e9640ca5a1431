"""Where metadata lies in etcd, as text: `etcd://[USER@]HOST[:PORT][,HOST[:PORT]...]/PREFIX`."""

import re
from dataclasses import dataclass
from typing import Final

from broker.addresses import joined_address, split_address
from broker.shown_url import shown_url

SCHEME: Final = "etcd://"
DEFAULT_PORT: Final = 2379
EXAMPLE: Final = "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/tidemark"
ENDPOINTS_MAX: Final = 16
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_PREFIX_BYTES_MAX: Final = 200
"""It stands in each of the 300 keys of a write, which has half a MiB for them."""


@dataclass(frozen=True, slots=True)
class EtcdPlace:
    """`endpoints`: host and port of members of one etcd cluster. `user`: empty for none."""

    endpoints: tuple[tuple[str, int], ...]
    prefix: str
    user: str = ""

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        hosts = ",".join([joined_address(*it) for it in self.endpoints])
        return f"{SCHEME}{user}{hosts}/{self.prefix}"


def etcd_place(url: str) -> EtcdPlace:
    """The place that a URL names. Raises ValueError, which says what to write instead."""
    # Settings are printed, logged, and passed on in the environment.
    shown = shown_url(url).text
    if not url.startswith(SCHEME):
        raise ValueError(f"{shown!r} is no URL of etcd, such as {EXAMPLE}")
    hosts, _, prefix = url.removeprefix(SCHEME).partition("/")
    user, at, hosts = hosts.rpartition("@")
    if ":" in user:
        raise ValueError(
            f"{shown!r} has a password; name the user alone, and set meta_password_file to a file"
            " with the password"
        )
    if at and not user:
        raise ValueError(f"{shown!r} has an empty user before '@'")
    prefix = prefix.removesuffix("/")
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _PREFIX_BYTES_MAX:
        raise ValueError(
            f"{shown!r} names no prefix for the keys, or one with other characters than letters,"
            f" digits, '.', '_', '-' and single '/', or of more than {_PREFIX_BYTES_MAX}; write"
            f" it like {EXAMPLE}"
        )
    endpoints = tuple([_endpoint(it, shown) for it in hosts.split(",")])
    if len(set(endpoints)) < len(endpoints):
        raise ValueError(f"{shown!r} names an endpoint twice")
    if len(endpoints) > ENDPOINTS_MAX:
        raise ValueError(f"{shown!r} names {len(endpoints)} endpoints; at most {ENDPOINTS_MAX}")
    return EtcdPlace(endpoints, prefix, user)


def checked_meta(url: str) -> str:
    """The URL as it is: empty for metadata that is not in etcd. Raises ValueError."""
    if url:
        etcd_place(url)
    return url


def _endpoint(text: str, shown: str) -> tuple[str, int]:
    has_port = ":" in text.rpartition("]")[2]
    try:
        host, port = split_address(text if has_port else f"{text}:{DEFAULT_PORT}")
    except ValueError:
        host, port = "", 0
    if not port or not host or any(it.isspace() or it in "?#@&=[]\\" for it in host):
        raise ValueError(
            f"{shown_url(text).text!r} in {shown!r} is no HOST or HOST:PORT of etcd; write"
            f" {EXAMPLE}"
        )
    return host, port
