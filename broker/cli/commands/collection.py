"""`tidemark collection`: the names people use."""

from typing import Annotated

import typer

from broker.cli.commands.flags import Json, Server

app = typer.Typer(help="Create, list and drop collections.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Letters, digits, _ and $; not a digit first.")]


@app.command()
def create(
    name: Name,
    shards: Annotated[int, typer.Option(min=1, help="One vchannel each.")] = 1,
    server: Server = "",
    json: Json = False,
) -> None:
    """Create a collection on the least loaded pchannels."""
    from broker.cli.show.questions import create_collection

    create_collection(server, name, shards, as_json=json)


@app.command("list")
def list_collections(server: Server = "", json: Json = False) -> None:
    """All collections with their vchannels."""
    from broker.cli.show.questions import show_collections

    show_collections(server, as_json=json)


@app.command()
def drop(name: Name, server: Server = "") -> None:
    """Forget a collection's name; its messages stay until retention removes them."""
    from broker.cli.show.questions import drop_collection

    drop_collection(server, name)
