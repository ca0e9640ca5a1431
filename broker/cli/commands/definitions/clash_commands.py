"""`tidemark collection clash`: lists and clears what clients of Milvus could not define."""

from typing import Annotated

import typer

from broker.cli.commands.flags import Json, Server

app = typer.Typer(
    help="List and clear clashes: changes by clients of Milvus that met a taken name or ID, so that"
    " they are on the control channel, but not in the table.",
    no_args_is_help=True,
)


@app.command("list")
def list_clashes(server: Server = "", json: Json = False) -> None:
    """List clashes with their IDs and causes."""
    from broker.cli.show.definition_tables import show_clashes

    show_clashes(server, as_json=json)


@app.command()
def clear(
    clashes: Annotated[
        list[str] | None, typer.Argument(metavar="[CLASH...]", help="IDs, as `list` shows them.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Clear all that are listed now.")] = False,
    server: Server = "",
) -> None:
    """Stop listing clashes that somebody has dealt with; nothing else changes."""
    from broker.cli.show.definition_tables import clear_clashes

    if bool(clashes) == every:
        raise typer.BadParameter("name clashes, or give --all")
    clear_clashes(server, clashes or None)
