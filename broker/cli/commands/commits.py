"""`tidemark commits`: shows the committed batches of applications."""

import typer

from broker.cli.commands.flags import Json, Server
from broker.cli.commands.show_by_default import ShowByDefaultGroup

app = typer.Typer(
    cls=ShowByDefaultGroup,
    help="Show committed batches of staged rows (`tidemark commits`).",
)


@app.command()
def show(server: Server = "", json: Json = False) -> None:
    """Show each application's newest committed batch, and its commit in progress."""
    from broker.cli.show.commit_table import show_commits

    show_commits(server, as_json=json)
