"""`tidemark init`: prepares a broker that other machines may reach."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands.flags import Meta, Wal
from broker.cli.session import USAGE, fail


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for keys and settings.")],
    secure: Annotated[
        bool, typer.Option("--secure", help="Make an authority, certificates and an administrator.")
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A name or address at which clients reach the broker; may be repeated. Default:"
            " the name of this machine.",
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A client to make a certificate for; may be repeated. Default: client.",
        ),
    ] = None,
    meta: Meta = None,
    wal: Wal = None,
) -> None:
    """Make a folder with all that a broker with TLS and users, and its clients, need."""
    if not secure:
        fail(
            "a broker on loopback needs no preparation: run `tidemark serve`; for one that other"
            " machines reach, pass --secure",
            USAGE,
        )
    from broker.cli.secure_folder import make_secure_folder

    make_secure_folder(folder, host or [], client or ["client"], meta or "", wal or "")
