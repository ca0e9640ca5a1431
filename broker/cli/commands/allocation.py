"""`tidemark ids`: takes ids and timestamps of the cluster."""

from typing import Annotated

import typer

from broker.cli.commands.flags import Json, Server


def ids(
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=65_536, help="How many of each.")
    ] = 1,
    server: Server = "",
    json: Json = False,
) -> None:
    """Take ids and timestamps that no other program gets, and print the first of each."""
    from broker.cli.show.definition_tables import take_ids

    take_ids(server, count, as_json=json)
