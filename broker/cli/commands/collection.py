"""`tidemark collection`: create, list, describe, alter, purge and drop collections; clashes."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands import completions
from broker.cli.commands.compaction_options import (
    Compact,
    CompactionLagMs,
    TombstoneMs,
    cleanup_of,
)
from broker.cli.commands.definitions import clash_commands
from broker.cli.commands.definitions.arguments import Database
from broker.cli.commands.flags import Json, Server
from broker.cli.commands.retention_options import RetentionBytes, RetentionMs

app = typer.Typer(
    help="Create, list, describe, alter, purge and drop collections.", no_args_is_help=True
)
app.add_typer(clash_commands.app, name="clash")

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
    retention_ms: RetentionMs = None,
    retention_bytes: RetentionBytes = None,
    compact: Compact = None,
    compaction_lag_ms: CompactionLagMs = None,
    tombstone_ms: TombstoneMs = None,
    database: Database = "",
    server: Server = "",
    json: Json = False,
) -> None:
    """Create a collection, on the pchannels with the fewest vchannels."""
    from broker.cli.schema_files import schema_like, schema_of
    from broker.cli.show.collection_table import NewCollection, create_collection

    if schema is not None and like is not None:
        raise typer.BadParameter("give --schema or --like, not both")
    columns = schema_of(schema) if schema else schema_like(like) if like else None
    options = cleanup_of(compact, compaction_lag_ms, tombstone_ms)
    options["retention_ms"], options["retention_bytes"] = retention_ms, retention_bytes
    wanted = NewCollection(name, shards, columns, database, options, exist_ok=if_not_exists)
    create_collection(server, wanted, as_json=json)


@app.command("list")
def list_collections(database: Database = "", server: Server = "", json: Json = False) -> None:
    """List the collections of a database with their vchannels."""
    from broker.cli.show.collection_table import show_collections

    show_collections(server, database, as_json=json)


@app.command()
def describe(
    name: Annotated[
        str,
        typer.Argument(
            help="Name or alias of a collection.", autocompletion=completions.collections
        ),
    ],
    database: Database = "",
    server: Server = "",
    json: Json = False,
) -> None:
    """Show a collection with its vchannels, partitions, aliases and fields."""
    from broker.cli.show.definition_tables import describe_collection

    describe_collection(server, name, database, as_json=json)


@app.command()
def alter(  # noqa: PLR0913 - each is an option of the command line
    name: Existing,
    add_columns: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Columns to add behind the others, as --schema of `create` takes them; they may"
            " be null. Those that it has already are skipped.",
        ),
    ] = None,
    retention_ms: RetentionMs = None,
    retention_bytes: RetentionBytes = None,
    compact: Compact = None,
    compaction_lag_ms: CompactionLagMs = None,
    tombstone_ms: TombstoneMs = None,
    database: Database = "",
    server: Server = "",
    json: Json = False,
) -> None:
    """Change a collection: which messages it keeps, or the columns of its schema."""
    from broker.cli.schema_files import schema_of
    from broker.cli.show.collection_table import alter_collection, change_cleanup

    options = cleanup_of(compact, compaction_lag_ms, tombstone_ms)
    options["retention_ms"], options["retention_bytes"] = retention_ms, retention_bytes
    of_cleanup = any(it is not None for it in options.values())
    if of_cleanup == (add_columns is not None):
        raise typer.BadParameter(
            "give --add-columns, or --retention-ms, --retention-bytes and --compact"
        )
    if add_columns is not None:
        alter_collection(server, name, schema_of(add_columns), database, as_json=json)
    else:
        change_cleanup(server, name, options, database, as_json=json)


@app.command()
def purge(
    name: Existing,
    to: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="Messages up to this tick, or from before this time in ISO 8601; `now`: all that"
            " is there.",
        ),
    ] = "",
    before_id: Annotated[
        int | None,
        typer.Option(min=1, help="Messages with a smaller id; for a collection of one shard."),
    ] = None,
    database: Database = "",
    server: Server = "",
    json: Json = False,
) -> None:
    """Remove the oldest messages of a collection for good; refused while somebody needs them."""
    from broker.cli.show.space.purge_table import WantedPurge, purge_collection

    if bool(to) == (before_id is not None):
        raise typer.BadParameter("give --to or --before-id, one of them")
    purge_collection(server, WantedPurge(name, to, before_id, database), as_json=json)


@app.command()
def drop(name: Existing, database: Database = "", server: Server = "") -> None:
    """Drop a collection; its space on the disk comes back within minutes."""
    from broker.cli.show.collection_table import drop_collection

    drop_collection(server, name, database)
