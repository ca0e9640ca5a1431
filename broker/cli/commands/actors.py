"""`tidemark actors`: show the tree of actors, or kill one of them."""

from typing import Annotated

import typer

from broker.cli.commands.flags import Json, Server
from broker.cli.commands.show_by_default import ShowByDefaultGroup

app = typer.Typer(
    cls=ShowByDefaultGroup,
    help="Show the tree of actors (`tidemark actors [PATH]`), or kill one of them.",
)


@app.command()
def show(
    path: Annotated[
        str, typer.Argument(help="Only this actor and those below it, such as /root/coordinator.")
    ] = "",
    all: Annotated[
        bool, typer.Option("--all", help="One line per actor instead of one per kind.")
    ] = False,
    server: Server = "",
    json: Json = False,
) -> None:
    """Show terms, states, mailboxes and restarts of actors, one line per kind."""
    from broker.cli.show.actor_tree import show_actors

    show_actors(server, path, as_json=json, each=all)


@app.command()
def kill(
    path: Annotated[str, typer.Argument(help="Path as in `tidemark actors --all`.")],
    term: Annotated[
        int, typer.Option(min=0, help="Kill only the incarnation with this term; 0: any.")
    ] = 0,
    server: Server = "",
) -> None:
    """Kill one actor as if it had crashed; needs a server started with --allow-chaos."""
    from broker.cli.show.actor_tree import kill_actor

    kill_actor(server, path, term)
