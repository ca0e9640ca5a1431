"""`tidemark streaming`: show the streaming version, or enable appends."""

import typer

from broker.cli.commands.flags import Server

app = typer.Typer(
    help="Show whether the cluster takes appends, or enable them.", no_args_is_help=True
)


@app.command()
def show(server: Server = "") -> None:
    """Show the streaming version of the cluster; at version 0 its channels are read-only."""
    from broker.cli.show.cluster_switches import show_streaming

    show_streaming(server, 0)  # only reads it: the version never sinks


@app.command()
def enable(server: Server = "") -> None:
    """Let every channel take appends. This is permanent: the version only grows."""
    from broker.cli.show.cluster_switches import show_streaming
    from broker.core.cluster.assignment import STREAMING_VERSION

    show_streaming(server, STREAMING_VERSION)
