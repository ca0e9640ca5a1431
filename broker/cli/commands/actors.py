"""`tidemark actors`: the tree in few lines, in full, and the end of one actor."""

from typing import Annotated

import typer

from broker.cli.commands.default_command import ShowsByDefault
from broker.cli.commands.flags import Json, Server

app = typer.Typer(
    cls=ShowsByDefault,
    help="The live tree of actors: `tidemark actors [PATH]`, or `kill` one of them.",
)


@app.command()
def show(
    path: Annotated[
        str, typer.Argument(help="Only what is there and below, such as /root/coordinator.")
    ] = "",
    all: Annotated[
        bool, typer.Option("--all", help="Each actor by itself, instead of each kind.")
    ] = False,
    server: Server = "",
    json: Json = False,
) -> None:
    """Terms, states, mailboxes and restarts; each kind of actor is one line without --all."""
    from broker.cli.show.actor_tree import show_actors

    show_actors(server, path, as_json=json, each=all)


@app.command()
def kill(
    path: Annotated[str, typer.Argument(help="As `tidemark actors --all` or --json names it.")],
    term: Annotated[
        int, typer.Option(min=0, help="Kill this incarnation or nobody; 0: whoever is there.")
    ] = 0,
    server: Server = "",
) -> None:
    """End one actor as if it had crashed; only where `serve --allow-chaos` runs."""
    from broker.cli.show.actor_tree import kill_actor

    kill_actor(server, path, term)
