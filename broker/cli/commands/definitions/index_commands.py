"""`tidemark index`: creates, drops and lists the indexes of a collection."""

from typing import Annotated

import typer

from broker.cli.commands.definitions.arguments import Collection, Database
from broker.cli.commands.flags import Json, Server

app = typer.Typer(
    help="Create, drop and list descriptions of indexes on vector fields.", no_args_is_help=True
)
Field = Annotated[str, typer.Argument(metavar="FIELD", help="Name of a vector field.")]
Name = Annotated[str, typer.Option(help="Name of the index.")]


@app.command()
def create(
    collection: Collection,
    field: Field,
    param: Annotated[
        list[str],
        typer.Option(
            "--param", "-p", metavar="KEY=VALUE", help="A parameter, such as index_type=HNSW."
        ),
    ],
    name: Name = "",
    database: Database = "",
    server: Server = "",
) -> None:
    """Describe an index on a field, for the programs that build it."""
    from broker.cli.show.definition_tables import change

    params: dict[str, str] = {}
    for each in param:
        key, equals, value = each.partition("=")
        if not key or not equals or key in params:
            raise typer.BadParameter(f"{each!r} must be KEY=VALUE, each key once", param_hint="-p")
        params[key] = value
    change(
        server,
        lambda log: log.master.create_index(
            collection, field, params, name=name, database=database
        ),
        f"index on {field} of {collection} created",
    )


@app.command()
def drop(
    collection: Collection,
    field: Field,
    name: Name = "",
    database: Database = "",
    server: Server = "",
) -> None:
    """Drop an index of a field; name it when the field has several."""
    from broker.cli.show.definition_tables import change

    change(
        server,
        lambda log: log.master.drop_index(collection, field, name=name, database=database),
        f"no such index on {field} of {collection} is left",
    )


@app.command("list")
def list_indexes(
    collection: Collection, database: Database = "", server: Server = "", json: Json = False
) -> None:
    """List the indexes of a collection with their parameters."""
    from broker.cli.show.definition_tables import show_indexes

    show_indexes(server, collection, database, as_json=json)
