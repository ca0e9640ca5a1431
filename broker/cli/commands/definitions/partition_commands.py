"""`tidemark partition`: creates, drops and lists the partitions of a collection."""

from typing import Annotated

import typer

from broker.cli.commands.definitions.arguments import Collection, Database
from broker.cli.commands.flags import Json, Server

app = typer.Typer(
    help="Create, drop and list the partitions of a collection.", no_args_is_help=True
)
Partition = Annotated[
    str, typer.Argument(metavar="PARTITION", help="Letters, digits, _ and $; no $ at the start.")
]


@app.command()
def create(
    collection: Collection, partition: Partition, database: Database = "", server: Server = ""
) -> None:
    """Add a partition to a collection."""
    from broker.cli.show.definition_tables import change

    change(
        server,
        lambda log: log.master.create_partition(collection, partition, database=database),
        f"partition {partition} of {collection} created",
    )


@app.command()
def drop(
    collection: Collection, partition: Partition, database: Database = "", server: Server = ""
) -> None:
    """Drop a partition; `_default` cannot be dropped."""
    from broker.cli.show.definition_tables import change

    change(
        server,
        lambda log: log.master.drop_partition(collection, partition, database=database),
        f"partition {partition} of {collection} dropped",
    )


@app.command("list")
def list_partitions(
    collection: Collection, database: Database = "", server: Server = "", json: Json = False
) -> None:
    """List the partitions of a collection with their IDs."""
    from broker.cli.show.definition_tables import show_pairs

    show_pairs(
        server,
        lambda log: log.master.show_partitions(collection, database=database),
        ("partition", "id"),
        as_json=json,
    )
