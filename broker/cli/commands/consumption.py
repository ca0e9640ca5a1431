"""`tidemark consumption`: pause and resume consumers."""

import typer

from broker.cli.commands.flags import Server

app = typer.Typer(help="Pause and resume consumers.", no_args_is_help=True)


@app.command()
def pause(server: Server = "") -> None:
    """Pause consumers that are opened from now on, unless they use --ignore-pause."""
    from broker.cli.show.cluster_switches import pause_consumption

    pause_consumption(server, paused=True)


@app.command()
def resume(server: Server = "") -> None:
    """Resume consumption; paused consumers start to read."""
    from broker.cli.show.cluster_switches import pause_consumption

    pause_consumption(server, paused=False)
