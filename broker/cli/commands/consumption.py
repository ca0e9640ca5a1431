"""`tidemark consumption`: hold consumers back and let them go."""

import typer

from broker.cli.commands.flags import Server

app = typer.Typer(help="Hold consumers back and let them go on.", no_args_is_help=True)


@app.command()
def pause(server: Server = "") -> None:
    """Consumers opened from now on begin only when resumed; --ignore-pause does not wait."""
    from broker.cli.show.questions import pause_consumption

    pause_consumption(server, paused=True)


@app.command()
def resume(server: Server = "") -> None:
    """Let all consumers begin that wait."""
    from broker.cli.show.questions import pause_consumption

    pause_consumption(server, paused=False)
