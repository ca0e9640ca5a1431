"""`tidemark init --secure`: a folder with an authority, certificates, a token and settings.

The settings turn `auth` on. The token of the administrator is in one file of its own; the broker
gets a salted hash of it, from the file of first users, when it starts for the first time.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from broker.addresses import joined_address
from broker.app.process_errors import CannotStart
from broker.app.security.bootstrap import first_users
from broker.app.security.certificate_authority import (
    AUTHORITY_DAYS,
    CERTIFICATE_DAYS,
    Authority,
    Issued,
)
from broker.app.security.cluster_secret import cluster_secret
from broker.cli.session import USAGE, fail
from broker.cli.show.output import show_lines
from broker.config import changed_settings
from broker.config_file import BadConfig
from broker.folder_lock import make_folder
from broker.process_settings import GivenSettings

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
OF_A_HOST: Final = ("tidemark.toml", "ca.pem", "server.pem", "server.key", "users.toml", "data")
"""What each host of a cluster needs: neither the key of the authority nor the token."""
READABLE, PRIVATE = 0o644, 0o600
CONFIG = "tidemark.toml"
USERS = "users.toml"
TOKEN = "admin.token"
DATA = "data"
SERVER = "server"
COORDINATOR_PORT, NODE_PORT = 19531, 19532
ADMIN = "admin"
"""The first user. No certificate has this name: it alone would prove who calls."""
LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
HOST_NAME: Final = re.compile(rf"(\*\.)?{LABEL}(\.{LABEL})*")
"""A name as DNS and containers have it; with `*.`, every name below it."""


@dataclass(frozen=True, slots=True)
class SharedPlaces:
    """Where the processes of several hosts keep what they share, and where they lead."""

    meta: str
    wal: str
    coordinators: str


def make_secure_folder(
    folder: Path, hosts: Sequence[str], clients: Sequence[str], meta: str = "", wal: str = ""
) -> None:
    """Make the folder and say how to use it. Ends the program when it exists with content.

    `hosts`: names and addresses at which clients reach the broker, besides loopback; by default the
    name of this machine. `meta`, `wal`: those of a cluster over these hosts.
    """
    shared = _shared(hosts, meta, wal)
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
        _write_all(folder.absolute(), issued, clients[0], shared)
    except (OSError, CannotStart) as error:
        fail(f"cannot make {folder}: {error}")
    _say(folder, hosts, clients, shared)


def _shared(hosts: Sequence[str], meta: str, wal: str) -> SharedPlaces | None:
    if not meta and not wal:
        return None
    if not meta or not wal:
        fail("--meta and --wal are given together: hosts share both, or none", USAGE)
    if not hosts or any(it.startswith("*") for it in hosts):
        fail("name each host of the cluster by --host, without a *: its processes call it", USAGE)
    try:
        changed_settings(GivenSettings(), {"meta": meta, "wal": wal})
    except BadConfig as error:
        fail(str(error), USAGE)
    leading = [joined_address(it, COORDINATOR_PORT) for it in dict.fromkeys(hosts)]
    return SharedPlaces(meta, wal, ",".join(leading))


def _issued(hosts: Sequence[str], clients: Sequence[str]) -> Mapping[str, Issued]:
    authority = Authority("Tidemark", datetime.now(UTC))
    own = {"ca": authority.own, SERVER: authority.issue(SERVER, hosts)}
    return own | {it: authority.issue(it) for it in clients}


def _write_all(
    folder: Path, issued: Mapping[str, Issued], client: str, shared: SharedPlaces | None
) -> None:
    for name, each in issued.items():
        _write(folder / f"{name}.pem", each.cert, READABLE)
        _write(folder / f"{name}.key", each.key, PRIVATE)
    token, users = first_users(ADMIN)
    _write(folder / TOKEN, f"{token}\n".encode(), PRIVATE)
    _write(folder / USERS, users.encode(), READABLE)
    if shared is not None:
        # Copied with the folder: the first process to start would make it on its host alone.
        make_folder(folder / DATA)
        cluster_secret(folder / DATA)
    # Last: a folder with settings is whole.
    _write(folder / CONFIG, _settings(folder, client, shared).encode(), READABLE)


def _settings(folder: Path, client: str, shared: SharedPlaces | None) -> str:
    def path(name: str) -> str:
        return _quoted(str(folder / name))

    places = server = ""
    if shared is not None:
        places = (
            f"meta = {_quoted(shared.meta)}\n"
            f"wal = {_quoted(shared.wal)}\n"
            f"coordinator = {_quoted(shared.coordinators)}\n"
        )
        server = f"server = {_quoted(shared.coordinators)}\n"
    return (
        f"data_dir = {path(DATA)}\n"
        f"{places}"
        f"tls_cert = {path(f'{SERVER}.pem')}\n"
        f"tls_key = {path(f'{SERVER}.key')}\n"
        f"tls_ca = {path('ca.pem')}\n"
        'auth = "on"\n'
        f"auth_bootstrap = {path(USERS)}\n\n"
        "[client]\n"
        f"{server}"
        f"tls_ca = {path('ca.pem')}\n"
        f"tls_cert = {path(f'{client}.pem')}\n"
        f"tls_key = {path(f'{client}.key')}\n"
        f"token_file = {path(TOKEN)}\n"
    )


def _quoted(text: str) -> str:
    """As TOML has it: a basic string escapes what JSON escapes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


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


def _say(
    folder: Path, hosts: Sequence[str], clients: Sequence[str], shared: SharedPlaces | None
) -> None:
    client, config = clients[0], f"--config {folder}/{CONFIG}"
    server = joined_address(hosts[0], COORDINATOR_PORT) if shared is None else shared.coordinators
    show_lines(
        f"made {folder} with an authority (ca, {AUTHORITY_DAYS // 365} years) and certificates"
        f" ({CERTIFICATE_DAYS} days) for the broker and for {', '.join(clients)}",
        f"the token of the user {ADMIN}, who may do everything, is in {folder}/{TOKEN} and nowhere"
        " else",
        *(_of_one_host(hosts[0], config) if shared is None else _of_hosts(folder, hosts, config)),
        f"call it from here, as {ADMIN}:",
        f"  tidemark health {config}",
        f"let who has the certificate of {client} append, or do what other roles and grants say:",
        f"  tidemark auth user add {client} --role writer {config}",
        f"from other machines, with copies of ca.pem, {client}.pem and {client}.key:",
        f'  connect("{server}", tls=Tls("ca.pem", "{client}.pem", "{client}.key"))',
        f"keep {folder}/ca.key offline: who has it can make certificates that the broker trusts",
    )


def _of_one_host(host: str, config: str) -> list[str]:
    anywhere = joined_address("::" if ":" in host else "0.0.0.0", COORDINATOR_PORT)
    return [
        "start a broker that other machines may reach:",
        f"  tidemark serve {config} --listen {anywhere} --advertise {host}",
    ]


def _of_hosts(folder: Path, hosts: Sequence[str], config: str) -> list[str]:
    needed = " ".join(f"{folder.absolute()}/{it}" for it in OF_A_HOST)
    lines = ["before anything starts, copy what the other hosts need, to the same path:"]
    for host in hosts[1:]:
        place = f"[{host}]" if ":" in host else host
        lines += [
            f"  ssh {host} mkdir -p -m 700 {folder.absolute()}",
            f"  scp -pr {needed} {place}:{folder.absolute()}/",
        ]
    for number, host in enumerate(hosts, 1):
        leads, serves = (joined_address(host, it) for it in (COORDINATOR_PORT, NODE_PORT))
        lines += [
            f"start on {host}:",
            f"  tidemark coordinator {config} --listen {leads}",
            f"  tidemark node {config} --node-id {number} --listen {serves}",
        ]
    return lines
