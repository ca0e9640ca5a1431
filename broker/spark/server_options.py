"""The options that say which broker to connect to, and how; the source and the sink have them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.spark.refusals import BadOption
from broker.spark.server_token import TOKEN_OPTIONS, token_here, token_options

if TYPE_CHECKING:
    from broker.client import Tls

DEFAULT_SERVER = "127.0.0.1:19531"
SERVER_OPTIONS: Mapping[str, tuple[str, str]] = {
    "server": (
        DEFAULT_SERVER,
        "address of the broker, or of the coordinator of a cluster; of several, all with commas",
    ),
    "cluster": ("by-dev", "name of the cluster; the broker refuses a query for another one"),
    "tls": ("`false`", "`true`: connect with TLS and trust what the system of each host trusts"),
    "tlsCa": (
        "none",
        (
            "connect with TLS and trust the authorities in this PEM file; like the next two it lies"
            " at this path on the driver and on every executor"
        ),
    ),
    "tlsCert": ("none", "PEM file of the certificate to show to the broker"),
    "tlsKey": ("none", "PEM file of its private key"),
    **TOKEN_OPTIONS,
}
"""Each option with its default and its meaning, for people."""


@dataclass(frozen=True, slots=True)
class Server:
    """A broker, and how to connect to it. `tls`: files of authorities, certificate and key.

    The token is pickled with it for executors, and is in no `repr`.
    """

    address: str
    cluster: str
    tls: tuple[str | None, str | None, str | None] | None = None
    token: str = field(default="", repr=False)
    token_file: str = ""

    def current_token(self) -> str:
        """The token to show from this process; "" for none. Raises BadOption."""
        return token_here(self.token, self.token_file)

    def client_tls(self) -> "Tls | None":
        """As `connect` takes it."""
        from broker.client import Tls

        return None if self.tls is None else Tls(*self.tls)


def server_of(given: Mapping[str, str]) -> Server:
    """The server that these options name, whose names are in lower case. Raises BadOption."""
    wanted = given.get("tls", "false").strip().lower()
    if wanted not in ("true", "false"):
        raise BadOption("tls", given["tls"], "use true or false")
    ca, cert, key = (given.get(name) or None for name in ("tlsca", "tlscert", "tlskey"))
    if (cert is None) != (key is None):
        named, missing = ("tlsCert", "tlsKey") if key is None else ("tlsKey", "tlsCert")
        raise BadOption(
            named, cert or key or "", f"give {missing}, too: a certificate needs its key"
        )
    files = (ca, cert, key) if wanted == "true" or ca or cert else None
    called = given.get("server", DEFAULT_SERVER), given.get("cluster", "by-dev"), files
    return Server(*called, *token_options(given))
