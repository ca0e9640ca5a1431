"""`tidemark collection`: create, list and drop collections."""

from typing import Annotated

import typer

from broker.cli.commands import completions
from broker.cli.commands.flags import Json, Server

app = typer.Typer(help="Create, list and drop collections.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Letters, digits, _ and $; must not begin with a digit.")]

Existing = Annotated[
    str,
    typer.Argument(
        help="Name as in `tidemark collection list`.", autocompletion=completions.collections
    ),
]


@app.command()
def create(
    name: Name,
    shards: Annotated[int, typer.Option(min=1, help="Number of shards, each a vchannel.")] = 1,
    server: Server = "",
    json: Json = False,
) -> None:
    """Create a collection, on the pchannels with the fewest vchannels."""
    from broker.cli.show.collection_table import create_collection

    create_collection(server, name, shards, as_json=json)


@app.command("list")
def list_collections(server: Server = "", json: Json = False) -> None:
    """List collections with their vchannels."""
    from broker.cli.show.collection_table import show_collections

    show_collections(server, as_json=json)


@app.command()
def drop(name: Existing, server: Server = "") -> None:
    """Drop a collection; its messages stay in the log until retention removes them."""
    from broker.cli.show.collection_table import drop_collection

    drop_collection(server, name)
