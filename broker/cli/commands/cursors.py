"""`tidemark cursors`: how far each named cursor is, and moving or dropping one.

Owns the spelling.
"""

from typing import Annotated

import typer

from broker.cli.commands.default_command import ShowsByDefault
from broker.cli.commands.flags import Json, Server

app = typer.Typer(
    cls=ShowsByDefault,
    help="Named cursors: `tidemark cursors`, `move` or `drop` one of them.",
)

Name = Annotated[str, typer.Argument(help="As `tidemark cursors` shows it.")]


@app.command()
def show(server: Server = "", json: Json = False) -> None:
    """All of them: the tick each has come to, and how far that is behind."""
    from broker.cli.show.cursor_table import show_cursors

    show_cursors(server, as_json=json)


@app.command()
def move(
    name: Annotated[str, typer.Argument(help="A new name makes a cursor.")],
    tick: Annotated[int, typer.Argument(min=1, help="A time tick that is closed.")],
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Collections or channels it is about from now on; a new one needs them."
        ),
    ] = None,
    server: Server = "",
) -> None:
    """Say that everything up to a tick is processed. A cursor never goes back."""
    from broker.cli.show.cursor_table import move_cursor

    move_cursor(server, name, tick, targets or [])


@app.command()
def drop(name: Name, server: Server = "") -> None:
    """Forget a cursor."""
    from broker.cli.show.cursor_table import drop_cursor

    drop_cursor(server, name)
