"""`tidemark alias`: creates, moves, drops and lists other names of collections."""

from typing import Annotated

import typer

from broker.cli.commands.definitions.arguments import Collection, Database
from broker.cli.commands.flags import Json, Server

app = typer.Typer(help="Create, move, drop and list aliases of collections.", no_args_is_help=True)
Alias = Annotated[
    str, typer.Argument(metavar="ALIAS", help="Another name for a collection of the same database.")
]


@app.command()
def create(
    collection: Collection,
    alias: Alias,
    alter: Annotated[
        bool, typer.Option("--alter", help="Move an alias of another collection to this one.")
    ] = False,
    database: Database = "",
    server: Server = "",
) -> None:
    """Give a collection another name."""
    from broker.cli.show.definition_tables import change

    change(
        server,
        lambda log: log.master.create_alias(collection, alias, alter=alter, database=database),
        f"{alias} stands for {collection}",
    )


@app.command()
def drop(alias: Alias, database: Database = "", server: Server = "") -> None:
    """Remove an alias; its collection stays."""
    from broker.cli.show.definition_tables import change

    change(
        server,
        lambda log: log.master.drop_alias(alias, database=database),
        f"alias {alias} dropped",
    )


@app.command("list")
def list_aliases(
    collection: Collection = "", database: Database = "", server: Server = "", json: Json = False
) -> None:
    """List the aliases of a collection, or of all collections."""
    from broker.cli.show.definition_tables import show_pairs

    show_pairs(
        server,
        lambda log: log.master.show_aliases(collection, database=database),
        ("alias", "collection"),
        as_json=json,
    )
