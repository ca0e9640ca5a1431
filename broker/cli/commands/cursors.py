"""`tidemark cursors`: shows, moves and drops named cursors."""

from typing import Annotated

import typer

from broker.cli.commands.completions import cursors as known_cursors
from broker.cli.commands.flags import Json, Server
from broker.cli.commands.show_by_default import ShowByDefaultGroup

app = typer.Typer(
    cls=ShowByDefaultGroup,
    help="Show named cursors (`tidemark cursors`), move or drop one of them.",
)

Name = Annotated[
    str, typer.Argument(help="Name as in `tidemark cursors`.", autocompletion=known_cursors)
]


@app.command()
def show(server: Server = "", json: Json = False) -> None:
    """Show the tick of each cursor, and how far it is behind. Retention does not wait for it."""
    from broker.cli.show.cursor_table import show_cursors

    show_cursors(server, as_json=json)


@app.command()
def move(
    name: Annotated[str, typer.Argument(help="Name of the cursor; a new name makes one.")],
    tick: Annotated[int, typer.Argument(min=1, help="A closed time tick.")],
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Collections or channels of the cursor; needed for a new one."),
    ] = None,
    server: Server = "",
) -> None:
    """Record that everything up to a tick is processed. A cursor never moves back."""
    from broker.cli.show.cursor_table import move_cursor

    move_cursor(server, name, tick, targets or [])


@app.command()
def drop(name: Name, server: Server = "") -> None:
    """Drop a cursor."""
    from broker.cli.show.cursor_table import drop_cursor

    drop_cursor(server, name)
