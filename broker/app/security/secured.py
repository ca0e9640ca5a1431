"""Builds TLS from the settings, and refuses to serve other machines without it."""

import stat
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import structlog

from broker.addresses import is_outside, split_address
from broker.app.process_errors import CannotStart
from broker.app.security.certificate_dates import authority_warning, expiry_warning
from broker.app.stores.plain_links import plain_links
from broker.process_settings import Settings
from broker.transport.tls import BadTls, ClientTls, ServerFiles, ServerTls, Tls

log = structlog.get_logger("tidemark")

ADVICE = (
    "`tidemark init --secure DIR` makes certificates and settings; or pass --insecure, if everyone"
    " who reaches it may read, write and drop everything"
)


def server_tls(settings: Settings) -> ServerTls | None:
    """The TLS of the gRPC port; None without. Clients must show a certificate if `tls_ca` is set.

    Raises CannotStart for files that cannot be used.
    """
    return _server_tls(settings, "h2", settings.tls_ca)


def http_tls(settings: Settings) -> ServerTls | None:
    """The TLS of the HTTP port. Raises CannotStart.

    A probe needs no certificate. Who reads the metrics may show one, while they ask for a proof.
    """
    client_ca = settings.tls_ca if settings.auth == "on" else None
    return _server_tls(settings, "http/1.1", client_ca, optional=True)


def _server_tls(
    settings: Settings, protocol: str, client_ca: Path | None, *, optional: bool = False
) -> ServerTls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    try:
        files = ServerFiles(settings.tls_cert, settings.tls_key, client_ca, optional)
        return ServerTls(files, protocol)
    except BadTls as error:
        raise CannotStart(f"TLS: {error}") from None


def client_tls(settings: Settings) -> ClientTls | None:
    """The TLS of calls to other processes of the cluster; None without. Raises CannotStart."""
    if settings.tls_cert is None:
        return None
    try:
        return ClientTls(Tls(settings.tls_ca, settings.tls_cert, settings.tls_key))
    except BadTls as error:
        raise CannotStart(f"TLS: {error}") from None


def exposed(settings: Settings) -> list[str]:
    """Which ports other machines reach without a proof of who they are, a sentence each."""
    found, address = [], settings.listen
    if is_outside(split_address(address)[0]):
        if settings.tls_cert is None:
            found.append(f"{address} can be reached by other machines, and speaks no TLS")
        elif settings.tls_ca is None and settings.auth != "on":
            found.append(
                f"{address} can be reached by other machines, and asks clients for no certificate"
                " (tls_ca is not set) and no token (auth is off)"
            )
    if settings.http_port is not None and is_outside(settings.http_host):
        reached = f"HTTP on {settings.http_host} can be reached by other machines"
        if settings.tls_cert is None:
            found.append(f"{reached}, and speaks no TLS")
        elif settings.auth != "on":
            found.append(f"{reached}, and asks who reads metrics for no proof (auth is off)")
    return found


def security_warnings(settings: Settings, now: datetime, plain: Sequence[str] = ()) -> list[str]:
    """What `health` says of the ports of this process, its stores, its key and its certificate.

    `plain`: the links to stores that were without TLS when they were made.
    """
    insecure = [f"insecure: {it}" for it in (*exposed(settings), *plain)]
    others = [
        unusable_warning(settings),
        key_warning(settings.tls_key),
        expiry_warning(settings.tls_cert, now),
        authority_warning(settings.tls_ca, now, "who shows a certificate of it"),
        authority_warning(settings.meta_tls_ca, now, "etcd"),
        authority_warning(settings.meta_tls_cert, now, "this process, by etcd,"),
    ]
    return [*insecure, *filter(None, others)]


def unusable_warning(settings: Settings) -> str:
    """What an operator should read when the files of TLS have become unusable; else empty."""
    try:
        server_tls(settings)
    except CannotStart as error:
        return (
            f"{error}; connections go on with what was read before, and a restart would fail;"
            " put usable files there"
        )
    return ""


def key_warning(key: Path | None) -> str:
    """What an operator should read when every user of this machine may read the key; else empty."""
    try:
        readable = key is not None and key.stat().st_mode & stat.S_IROTH
    except OSError:
        return ""  # `unusable_warning` says what is wrong
    return f"every user of this machine may read the key {key}; chmod 600 it" if readable else ""


def refuse_exposed(settings: Settings) -> None:
    """Raises CannotStart when other machines reach this process without proof, or TLS is unusable.

    With `insecure` it is logged instead, as what may be read on the way to its stores always is.
    """
    server_tls(settings)
    reasons = exposed(settings)
    if reasons and not settings.insecure:
        raise CannotStart(f"{'; '.join(reasons)}: {ADVICE}")
    for reason in (*reasons, *plain_links(settings)):
        log.warning("insecure", because=reason)
