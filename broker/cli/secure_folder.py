"""`tidemark init --secure`: a folder with an authority, certificates, a token and settings.

The settings turn `auth` on. The token of the administrator is in one file of its own; the broker
gets a salted hash of it, from the file of first users, when it starts for the first time.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from broker.addresses import joined_address
from broker.app.security.bootstrap import first_users
from broker.app.security.certificate_authority import (
    AUTHORITY_DAYS,
    CERTIFICATE_DAYS,
    Authority,
    Issued,
)
from broker.cli.session import USAGE, fail
from broker.cli.show.output import show

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
READABLE, PRIVATE = 0o644, 0o600
CONFIG = "tidemark.toml"
USERS = "users.toml"
TOKEN = "admin.token"
SERVER = "server"
ADMIN = "admin"
"""The first user. No certificate has this name: it alone would prove who calls."""
LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
HOST_NAME: Final = re.compile(rf"(\*\.)?{LABEL}(\.{LABEL})*")
"""A name as DNS and containers have it; with `*.`, every name below it."""


def make_secure_folder(folder: Path, hosts: Sequence[str], clients: Sequence[str]) -> None:
    """Make the folder and say how to use it. Ends the program when it exists with content.

    `hosts`: names and addresses at which clients reach the broker, besides loopback; by default the
    name of this machine.
    """
    hosts, clients = hosts or [socket.gethostname()], [*dict.fromkeys(clients)]
    if ADMIN in clients:
        fail(
            f"{ADMIN!r} is the user who has the token, and with a certificate of that name would"
            " need none; name the client otherwise",
            USAGE,
        )
    if wrong := [it for it in clients if it in (SERVER, "ca") or not _fits(it)]:
        fail(f"{wrong[0]!r} cannot be the name of a client: use letters, digits, - and _", USAGE)
    if wrong := [it for it in hosts if not _is_host(it)]:
        fail(
            f"{wrong[0]!r} cannot be in a certificate: use --host NAME or ADDRESS, without a port,"
            " such as broker.example.org or 10.0.0.5",
            USAGE,
        )
    issued = _issued([*dict.fromkeys([*LOOPBACK, *hosts])], clients)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            fail(f"{folder} is not empty; name a new folder, or remove it if nobody uses its keys")
        _write_all(folder.absolute(), issued, clients[0])
    except OSError as error:
        fail(f"cannot make {folder}: {error}")
    _say(folder, hosts[0], clients)


def _issued(hosts: Sequence[str], clients: Sequence[str]) -> Mapping[str, Issued]:
    authority = Authority("Tidemark", datetime.now(UTC))
    own = {"ca": authority.own, SERVER: authority.issue(SERVER, hosts)}
    return own | {it: authority.issue(it) for it in clients}


def _write_all(folder: Path, issued: Mapping[str, Issued], client: str) -> None:
    for name, each in issued.items():
        _write(folder / f"{name}.pem", each.cert, READABLE)
        _write(folder / f"{name}.key", each.key, PRIVATE)
    token, users = first_users(ADMIN)
    _write(folder / TOKEN, f"{token}\n".encode(), PRIVATE)
    _write(folder / USERS, users.encode(), READABLE)
    # Last: a folder with settings is whole.
    _write(folder / CONFIG, _settings(folder, client).encode(), READABLE)


def _settings(folder: Path, client: str) -> str:
    def path(name: str) -> str:
        # A TOML basic string escapes what JSON escapes.
        return '"' + str(folder / name).replace("\\", "\\\\").replace('"', '\\"') + '"'

    return (
        f"data_dir = {path('data')}\n"
        f"tls_cert = {path(f'{SERVER}.pem')}\n"
        f"tls_key = {path(f'{SERVER}.key')}\n"
        f"tls_ca = {path('ca.pem')}\n"
        'auth = "on"\n'
        f"auth_bootstrap = {path(USERS)}\n\n"
        "[client]\n"
        f"tls_ca = {path('ca.pem')}\n"
        f"tls_cert = {path(f'{client}.pem')}\n"
        f"tls_key = {path(f'{client}.key')}\n"
        f"token_file = {path(TOKEN)}\n"
    )


def _write(file: Path, content: bytes, mode: int) -> None:
    # Created with its mode: a key must not be readable by others for a moment.
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def _fits(name: str) -> bool:
    return bool(name) and name.isascii() and name.replace("-", "").replace("_", "").isalnum()


def _is_host(host: str) -> bool:
    try:
        return not getattr(ipaddress.ip_address(host), "scope_id", None)
    except ValueError:
        return HOST_NAME.fullmatch(host) is not None


def _say(folder: Path, host: str, clients: Sequence[str]) -> None:
    client, v6 = clients[0], ":" in host
    anywhere = "[::]" if v6 else "0.0.0.0"
    show(
        f"made {folder} with an authority (ca, {AUTHORITY_DAYS // 365} years) and certificates"
        f" ({CERTIFICATE_DAYS} days) for the broker and for {', '.join(clients)}",
        f"the token of the user {ADMIN}, who may do everything, is in {folder}/{TOKEN} and nowhere"
        " else",
        "start a broker that other machines may reach:",
        f"  tidemark serve --config {folder}/{CONFIG} --listen {anywhere}:19531 --advertise {host}",
        f"call it from here, as {ADMIN}:",
        f"  tidemark health --config {folder}/{CONFIG}",
        f"let who has the certificate of {client} append, or do what other roles and grants say:",
        f"  tidemark auth user add {client} --role writer --config {folder}/{CONFIG}",
        f"from other machines, with copies of ca.pem, {client}.pem and {client}.key:",
        f'  connect("{joined_address(host, 19531)}",'
        f' tls=Tls("ca.pem", "{client}.pem", "{client}.key"))',
        f"keep {folder}/ca.key offline: who has it can make certificates that the broker trusts",
    )
