"""`tidemark broadcasts`: list broadcasts and locks, and take broadcasts out of quarantine."""

from typing import Annotated

import typer

from broker.cli.commands.flags import Json, Server

app = typer.Typer(
    help="List unfinished broadcasts and locks; retry or skip those in quarantine.",
    no_args_is_help=True,
)
quarantine = typer.Typer(
    help="Broadcasts that cannot continue without an operator. Each blocks its resource keys.",
    no_args_is_help=True,
)
app.add_typer(quarantine, name="quarantine")

Id = Annotated[str, typer.Argument(metavar="ID", help="ID as in `quarantine list`.")]


@app.command("list")
def list_broadcasts(server: Server = "", json: Json = False) -> None:
    """List unfinished broadcasts and their progress.

    `by` says who acknowledges a copy: `write`, once it is durable; with ack_sync_up `node`, once
    its node has applied it, or `consumer`, by Ack, where TIDEMARK_NODE_ACKS is false.
    """
    from broker.cli.show.broadcast_table import show_broadcasts

    show_broadcasts(server, quarantine_only=False, as_json=json)


@app.command()
def locks(server: Server = "", json: Json = False) -> None:
    """List the holders of resource keys, and who waits for them, in order of arrival."""
    from broker.cli.show.broadcast_table import show_locks

    show_locks(server, as_json=json)


@quarantine.command("list")
def list_quarantine(server: Server = "", json: Json = False) -> None:
    """List the broadcasts in quarantine, with the cause."""
    from broker.cli.show.broadcast_table import show_broadcasts

    show_broadcasts(server, quarantine_only=True, as_json=json)


@quarantine.command()
def retry(id: Id, server: Server = "") -> None:
    """Retry the failed step; the broadcast leaves quarantine unless it fails again."""
    from broker.cli.show.broadcast_table import leave_quarantine

    leave_quarantine(server, id, skip=False)


@quarantine.command()
def skip(id: Id, server: Server = "") -> None:
    """Declare the broadcast done as it is, and release its keys."""
    from broker.cli.show.broadcast_table import leave_quarantine

    leave_quarantine(server, id, skip=True)
