"""Reads the configuration file: settings of a server, and those of client commands in `[client]`.

A client command imports this module alone: the checks of a server's settings need pydantic, which
takes longer to import than most commands run.
"""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

CONFIG_FILE = "tidemark.toml"
"""Read from the working directory when no other file is named."""
CLIENT_TABLE = "client"
SECONDS_MAX = 86_400.0


class BadConfig(Exception):
    """A configuration that cannot be used; the text names the place, the value and what to do."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where client commands connect to, and how long they wait; None: not said here."""

    server: str | None = None
    """HOST:PORT of the broker; with commas between them, of all coordinators that may lead."""
    cluster: str | None = None
    """Name of the cluster that the broker must belong to."""
    tls: bool | None = None
    """Connect with TLS, trusting the authorities that the system trusts, or those of `tls_ca`."""
    tls_ca: str | None = None
    """PEM file of the authorities to trust; with it, the connection uses TLS."""
    tls_cert: str | None = None
    """PEM file of the certificate shown to the broker."""
    tls_key: str | None = None
    """PEM file of its private key."""
    token_file: str | None = None
    """File with the token that proves who calls; without it the variable TIDEMARK_TOKEN."""
    connect_s: float | None = None
    """Seconds to wait for the broker's first answer."""
    open_s: float | None = None
    """Seconds to wait for a stream to open."""
    append_s: float | None = None
    """Seconds that an append may take, with all retries."""
    call_s: float | None = None
    """Seconds that a call with one answer may take."""


def read_config(file: Path | None) -> dict[str, Any]:
    """The content of the file; of `tidemark.toml`, if it is there, when none is named.

    Raises BadConfig when the file cannot be read or is not TOML.
    """
    path = Path(CONFIG_FILE) if file is None else file
    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        if file is None:
            return {}
        raise BadConfig(f"there is no configuration file {path}") from None
    except OSError as error:
        raise BadConfig(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} is not valid TOML: {error}") from None


def client_config(table: object, where: str) -> ClientConfig:
    """The checked content of a table such as `[client]`; `where` names it in errors.

    Raises BadConfig with everything that is wrong in it.
    """
    if not isinstance(table, Mapping):
        raise BadConfig(f"{where} must be a table of settings, not {table!r}")
    known = [it.name for it in fields(ClientConfig)]
    wrong = []
    for name, value in table.items():
        if name not in known:
            wrong.append(f"{name!r} in {where} is not a setting of a client{nearest(name, known)}")
        elif reason := _refused(name, value):
            wrong.append(f"{name} in {where} {reason}, not {value!r}")
    if wrong:
        raise BadConfig("; ".join(wrong))
    return ClientConfig(**table)


def nearest(name: str, known: Collection[str]) -> str:
    """A hint with the known name that is most like this one; empty when none is."""
    found = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else f"; use one of {', '.join(sorted(known))}"


def _refused(name: str, value: object) -> str:
    """Why a client's setting cannot have this value; empty when it can."""
    if name.endswith("_s"):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # Compared this way round, NaN is refused too.
        if number and 0 < value <= SECONDS_MAX:  # type: ignore[operator] # it is a number
            return ""
        return f"must be a number of seconds above 0 and at most {SECONDS_MAX:,.0f}"
    if name == "tls":
        return "" if isinstance(value, bool) else "must be true or false"
    if not isinstance(value, str) or not value:
        return "must be text"
    if name == "server" and not is_server(value):
        return "must be HOST:PORT, or several with commas between them"
    return ""


def is_server(text: str) -> bool:
    """Whether it is HOST:PORT, or several different ones with commas between them."""
    found = [it.strip() for it in text.split(",")]
    return all(map(_is_address, found)) and len(set(found)) == len(found)


def _is_address(text: str) -> bool:
    """Whether one can connect to it."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536
