"""`tidemark broadcasts`: what is on its way, who holds which keys, and what is in quarantine.

Owns the spelling and the tables.
"""

from typing import Annotated

import typer

from broker.cli.commands.flags import Json, Server

app = typer.Typer(
    help="Broadcasts on their way, their locks, and quarantine.", no_args_is_help=True
)
quarantine = typer.Typer(
    help="Broadcasts that cannot go on by themselves; each blocks its resource keys.",
    no_args_is_help=True,
)
app.add_typer(quarantine, name="quarantine")

Id = Annotated[str, typer.Argument(metavar="ID", help="As `quarantine list` shows it.")]


@app.command("list")
def list_broadcasts(server: Server = "", json: Json = False) -> None:
    """All that are not finished, with how far they have come."""
    from broker.cli.show.broadcast_table import show_broadcasts

    show_broadcasts(server, quarantine_only=False, as_json=json)


@app.command()
def locks(server: Server = "", json: Json = False) -> None:
    """Resource keys: who holds them and who waits, in the order they came."""
    from broker.cli.show.broadcast_table import show_locks

    show_locks(server, as_json=json)


@quarantine.command("list")
def list_quarantine(server: Server = "", json: Json = False) -> None:
    """Those in quarantine, and why."""
    from broker.cli.show.broadcast_table import show_broadcasts

    show_broadcasts(server, quarantine_only=True, as_json=json)


@quarantine.command()
def retry(id: Id, server: Server = "") -> None:
    """Try again what failed; the broadcast leaves quarantine unless it fails for good again."""
    from broker.cli.show.broadcast_table import leave_quarantine

    leave_quarantine(server, id, skip=False)


@quarantine.command()
def skip(id: Id, server: Server = "") -> None:
    """Call the broadcast done as it is, and let its keys go."""
    from broker.cli.show.broadcast_table import leave_quarantine

    leave_quarantine(server, id, skip=True)
