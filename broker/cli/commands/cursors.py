"""`tidemark cursors`: shows, moves, resets and drops named cursors."""

from typing import Annotated

import typer

from broker.cli.commands.completions import cursors as known_cursors
from broker.cli.commands.flags import Json, Place, Server
from broker.cli.commands.show_by_default import ShowByDefaultGroup

app = typer.Typer(
    cls=ShowByDefaultGroup,
    help="Show named cursors (`tidemark cursors`); move, reset or drop one of them.",
)

Name = Annotated[
    str, typer.Argument(help="Name as in `tidemark cursors`.", autocompletion=known_cursors)
]


@app.command()
def show(server: Server = "", json: Json = False) -> None:
    """Show where each cursor is, how far behind, and how much it holds back from retention."""
    from broker.cli.show.cursor_table import show_cursors

    show_cursors(server, as_json=json)


@app.command(name="list", hidden=True)
def list_all(server: Server = "", json: Json = False) -> None:
    """The same as `show`."""
    show(server, json)


@app.command()
def get(name: Name, server: Server = "", json: Json = False) -> None:
    """Show one cursor: where it is on each vchannel, and how far it is behind there."""
    from broker.cli.show.cursor_table import show_cursor

    show_cursor(server, name, as_json=json)


@app.command()
def reset(
    name: Annotated[str, typer.Argument(help="Name of the cursor; a new name makes one.")],
    to: Place,
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Collections or channels of the cursor; needed for a new one."),
    ] = None,
    hold: Annotated[
        bool | None,
        typer.Option(
            "--hold/--no-hold",
            help="Whether retention keeps what the cursor needs, within limits; a new one holds.",
        ),
    ] = None,
    server: Server = "",
) -> None:
    """Set a cursor forward or back. Readers that were started from it can no longer commit."""
    from broker.cli.show.cursor_table import reset_cursor

    reset_cursor(server, name, to, targets or [], holds=hold)


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
    """Record that everything up to a tick is processed; `reset` sets a cursor back."""
    from broker.cli.show.cursor_table import move_cursor

    move_cursor(server, name, tick, targets or [])


@app.command()
def drop(name: Name, server: Server = "") -> None:
    """Drop a cursor."""
    from broker.cli.show.cursor_table import drop_cursor

    drop_cursor(server, name)
