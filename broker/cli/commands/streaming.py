"""`tidemark streaming`: whether the cluster's channels take appends."""

import typer

from broker.cli.commands.flags import Server

app = typer.Typer(help="Whether the cluster takes appends yet.", no_args_is_help=True)


@app.command()
def show(server: Server = "") -> None:
    """The streaming version of the cluster; 0: its channels are served read-only."""
    from broker.cli.show.questions import show_streaming

    show_streaming(server, 0)


@app.command()
def enable(server: Server = "") -> None:
    """Have every channel take appends. There is no way back: the version only grows."""
    from broker.cli.show.questions import show_streaming
    from broker.core.cluster.assignment import STREAMING_VERSION

    show_streaming(server, STREAMING_VERSION)
