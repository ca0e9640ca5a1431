"""The options that most commands share."""

from typing import Annotated

import typer

Server = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        envvar="TIDEMARK_SERVER",
        help="The broker to talk to; 127.0.0.1:19531 by default.",
        show_default=False,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="One line of JSON instead of a table.")]
