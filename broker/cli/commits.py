"""`tidemark commits`: each app that commits batches, and how far it is.

Owns the spelling. Next: broker/cli/showing_commits.py
"""

import typer

from broker.cli.groups import ShowsByDefault
from broker.cli.options import Json, Server

app = typer.Typer(
    cls=ShowsByDefault, help="Batches of staged rows: what each app has committed, as one, last."
)


@app.command()
def show(server: Server = "", json: Json = False) -> None:
    """All apps: the newest batch of each, and the commit that is under way."""
    from broker.cli.showing_commits import show_commits

    show_commits(server, as_json=json)
