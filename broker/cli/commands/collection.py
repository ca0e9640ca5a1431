"""`tidemark collection`: create, list, describe and drop collections."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands import completions
from broker.cli.commands.flags import Json, Server

app = typer.Typer(help="Create, list, describe and drop collections.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(help="Letters, digits, _, $, - and .; begins with a letter or _."),
]

Existing = Annotated[
    str,
    typer.Argument(
        help="Name as in `tidemark collection list`.", autocompletion=completions.collections
    ),
]


@app.command()
def create(  # noqa: PLR0913 - each is an option of the command line
    name: Name,
    shards: Annotated[int, typer.Option(min=1, help="Number of shards, each a vchannel.")] = 1,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The columns of its rows: a .json file, or the schema of an .arrow or .parquet"
            " file.",
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take the columns from data: a .jsonl, .csv, .parquet or .arrow file.",
        ),
    ] = None,
    if_not_exists: Annotated[
        bool,
        typer.Option(
            "--if-not-exists", help="Succeed when it exists with the same shards and columns."
        ),
    ] = False,
    server: Server = "",
    json: Json = False,
) -> None:
    """Create a collection, on the pchannels with the fewest vchannels."""
    from broker.cli.schema_files import schema_like, schema_of
    from broker.cli.show.collection_table import create_collection

    if schema is not None and like is not None:
        raise typer.BadParameter("give --schema or --like, not both")
    columns = schema_of(schema) if schema else schema_like(like) if like else None
    create_collection(server, name, shards, columns, exist_ok=if_not_exists, as_json=json)


@app.command("list")
def list_collections(server: Server = "", json: Json = False) -> None:
    """List collections with their vchannels."""
    from broker.cli.show.collection_table import show_collections

    show_collections(server, as_json=json)


@app.command()
def describe(
    name: Annotated[
        str,
        typer.Argument(
            help="Name or alias of a collection.", autocompletion=completions.collections
        ),
    ],
    database: Annotated[
        str, typer.Option(metavar="NAME", help="Database of the collection; default: default.")
    ] = "",
    server: Server = "",
    json: Json = False,
) -> None:
    """Show a collection with its vchannels, partitions, aliases and fields."""
    from broker.cli.show.definition_tables import describe_collection

    describe_collection(server, name, database, as_json=json)


@app.command()
def drop(name: Existing, server: Server = "") -> None:
    """Drop a collection; its space on the disk comes back within minutes."""
    from broker.cli.show.collection_table import drop_collection

    drop_collection(server, name)
