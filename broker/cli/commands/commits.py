"""`tidemark commits`: each app that commits batches, and how far it is.

Owns the spelling.
"""

import typer

from broker.cli.commands.default_command import ShowsByDefault
from broker.cli.commands.flags import Json, Server

app = typer.Typer(
    cls=ShowsByDefault, help="Batches of staged rows: what each app has committed, as one, last."
)


@app.command()
def show(server: Server = "", json: Json = False) -> None:
    """All apps: the newest batch of each, and the commit that is under way."""
    from broker.cli.show.commit_table import show_commits

    show_commits(server, as_json=json)
