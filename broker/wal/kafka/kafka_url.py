"""The URL that says which Kafka keeps the log, and how: `kafka://HOST[:PORT],.../PREFIX?...`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from broker.addresses import joined_address, split_address
from broker.shown_url import shown_url

SCHEME: Final = "kafka"
DEFAULT_PORT: Final = 9092
EXAMPLE: Final = "kafka://10.0.0.5:9092,10.0.0.6:9092/tidemark?replication=3&min_isr=2"
REPLICAS_MAX: Final = 100
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,120}")
_SYNCS: Final = {"always": True, "replicas": False}
_KNOWN: Final = ("replication", "min_isr", "sync", "client")


class BadWalUrl(ValueError):
    """The URL does not say where the log is; the message says what is wrong with it.

    `url`: as it may be shown.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url!r}: {reason}; write it as {EXAMPLE}")
        self.url, self.reason = url, reason


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """Where a log is in Kafka, and how safely it is kept there.

    `servers`: HOST:PORT of brokers to ask first. Topics are named `PREFIX.PCHANNEL`. Of
    `replication` copies `min_isr` must have a group before it is acknowledged. `syncs`: each copy
    is also synced to its disk by then. `client`: a file with properties of librdkafka, or empty.
    """

    servers: tuple[str, ...]
    prefix: str
    replication: int = 3
    min_isr: int = 2
    syncs: bool = False
    client: str = ""

    def topic(self, channel: str) -> str:
        """The topic of a pchannel."""
        return f"{self.prefix}.{channel}"

    @property
    def shown(self) -> str:
        """For messages: where it is, without how."""
        return f"{SCHEME}://{','.join(self.servers)}/{self.prefix}"


def kafka_place(url: str) -> KafkaPlace:
    """Parse the URL. Raises BadWalUrl."""
    # Not by urlsplit: newer Pythons refuse several servers when one is an IPv6 address.
    scheme, found, behind = url.partition("://")
    shown = shown_url(url, _KNOWN)
    if not found or scheme.lower() != SCHEME:
        other = shown.text.partition("://")[0] if found else ""
        raise BadWalUrl(shown.text, f"the scheme must be {SCHEME}, not {other!r}")
    if shown.has_user:
        reason = "it holds a user or a password; name a file with them as client=FILE"
        raise BadWalUrl(shown.text, reason)
    if shown.unknown is not None:
        reason = f"{shown.unknown!r} is unknown; known are {', '.join(_KNOWN)}"
        raise BadWalUrl(shown.text, reason)
    # From here on nothing is hidden: reasons may quote parts of the URL.
    behind, _, fragment = behind.partition("#")
    behind, _, query_text = behind.partition("?")
    netloc, _, prefix = behind.partition("/")
    if fragment:
        raise BadWalUrl(url, f"#{fragment} has no meaning here")
    servers = tuple(_server(url, each) for each in netloc.split(","))
    if not _PREFIX.fullmatch(prefix) or not prefix.strip("."):
        raise BadWalUrl(
            url,
            f"the prefix of the topics is {prefix!r}; it needs 1 to 120 letters, digits, dots,"
            " hyphens and underscores behind the servers and a slash",
        )
    query = _query(url, query_text)
    replication = _count(url, query, "replication", 3)
    min_isr = _count(url, query, "min_isr", 1 if replication < 3 else replication - 1)
    if min_isr > replication:
        raise BadWalUrl(url, f"min_isr={min_isr} is more than replication={replication}")
    # One copy in the memory of one machine does not survive its power cut.
    sync = query.get("sync", "replicas" if min_isr > 1 else "always")
    if sync not in _SYNCS:
        raise BadWalUrl(url, f"sync={sync} must be {' or '.join(_SYNCS)}")
    client = query.get("client", "")
    return KafkaPlace(servers, prefix, replication, min_isr, _SYNCS[sync], client)


def checked_wal(url: str) -> str:
    """The URL of a log as it is: empty for segment files. Raises BadWalUrl."""
    if url:
        kafka_place(url)
    return url


def _server(url: str, address: str) -> str:
    has_port = ":" in address.rpartition("]")[2]
    try:
        host, port = split_address(address if has_port else f"{address}:{DEFAULT_PORT}")
    except ValueError:
        raise BadWalUrl(url, f"the server {address!r} is not HOST or HOST:PORT") from None
    bare_v6 = ":" in host and not address.startswith("[")
    if bare_v6 or any(it.isspace() or it in "@#?[]\\" for it in host):
        raise BadWalUrl(url, f"the server {address!r} is not HOST or HOST:PORT")
    if not port:
        raise BadWalUrl(url, f"the server {address!r} has port 0")
    return joined_address(host, port)


def _query(url: str, text: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError:
        raise BadWalUrl(url, f"?{text} is not NAME=VALUE&...") from None
    for name, value in pairs:
        if name in found:
            raise BadWalUrl(url, f"{name} stands twice")
        if not value:
            raise BadWalUrl(url, f"{name} has no value")
        found[name] = value
    return found


def _count(url: str, query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and 0 < int(text[:4]) <= REPLICAS_MAX):
        raise BadWalUrl(url, f"{name}={text} must be a number from 1 to {REPLICAS_MAX}")
    return int(text)
