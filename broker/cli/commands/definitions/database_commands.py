"""`tidemark database`: creates, drops and lists databases."""

from typing import Annotated

import typer

from broker.cli.commands.flags import Json, Server

app = typer.Typer(help="Create, drop and list databases.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Letters, digits and _; no digit at the start.")]


@app.command()
def create(name: Name, server: Server = "") -> None:
    """Add a database."""
    from broker.cli.show.definition_tables import change

    change(server, lambda log: log.master.create_database(name), f"database {name} created")


@app.command()
def drop(name: Name, server: Server = "") -> None:
    """Drop a database that has no collections."""
    from broker.cli.show.definition_tables import change

    change(server, lambda log: log.master.drop_database(name), f"database {name} dropped")


@app.command("list")
def list_databases(server: Server = "", json: Json = False) -> None:
    """List databases with their IDs."""
    from broker.cli.show.definition_tables import show_pairs

    show_pairs(server, lambda log: log.master.list_databases(), ("database", "id"), as_json=json)
