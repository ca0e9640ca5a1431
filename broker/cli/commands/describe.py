"""`tidemark describe`: everything about one collection, channel or cursor."""

from typing import Annotated

import typer

from broker.cli.commands.completions import names
from broker.cli.commands.flags import Json, Server


def describe(
    name: Annotated[
        str,
        typer.Argument(
            help="A collection, a vchannel, a pchannel or a cursor.", autocompletion=names
        ),
    ],
    server: Server = "",
    json: Json = False,
) -> None:
    """Show a collection, channel or cursor: shards, owners, sizes, ticks, lag, what reads it."""
    from broker.cli.show.description import show_description

    show_description(server, name, as_json=json)
