"""The options that most commands share."""

from pathlib import Path
from typing import Annotated

import typer

Server = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        envvar="TIDEMARK_SERVER",
        help="The broker to talk to; 127.0.0.1:19531 by default.",
        show_default=False,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="One line of JSON instead of a table.")]

DataDir = Annotated[
    Path | None, typer.Option(help="Where everything is kept; ./tidemark-data by default.")
]
Listen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="127.0.0.1:19531 by default; port 0 picks one."),
]
Cluster = Annotated[
    str | None, typer.Option(help="Prefix of the channels' names; by-dev by default.")
]
PChannels = Annotated[
    int | None,
    typer.Option(help="Physical channels; 16 by default. The number can grow, never shrink."),
]
LogFormat = Annotated[
    str | None, typer.Option(metavar="console|json", help="For people, or one object a line.")
]
AllowChaos = Annotated[
    bool | None,
    typer.Option("--allow-chaos", help="Let `tidemark actors kill` end actors; for practice."),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(metavar="PORT", help="Serve Prometheus metrics on 127.0.0.1; off by default."),
]
