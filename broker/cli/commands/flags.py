"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Server = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT[,...]",
        # Not `envvar`: a profile that was named by a flag goes before the environment.
        help="Address of the broker, or those of all coordinators; default: that of --profile,"
        " else TIDEMARK_SERVER, else 127.0.0.1:19531.",
        show_default=False,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of a table.")]

Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="TOML file with settings; default: tidemark.toml in the working directory.",
    ),
]
DataDir = Annotated[Path | None, typer.Option(help="Data folder; default: ./tidemark-data.")]
Meta = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Keep the metadata in etcd, at etcd://[USER@]HOST[:PORT],.../PREFIX; default: in the"
        " data folder.",
    ),
]
Wal = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where the log is: kafka://HOST[:PORT],.../PREFIX; default: in the data folder.",
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address to listen on; port 0 is a free one. Default: 127.0.0.1:19531.",
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Address that clients are given for this process; default: the one listened on.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(help="Name of the cluster, which channel names begin with; default: by-dev."),
]
PChannels = Annotated[
    int | None,
    typer.Option(help="Number of pchannels; it can grow, never shrink. Default: 16."),
]
LogFormat = Annotated[
    str | None,
    typer.Option(metavar="console|json", help="Log lines for people, or one JSON object per line."),
]
AllowChaos = Annotated[
    bool | None,
    typer.Option("--allow-chaos", help="Allow `tidemark actors kill`, to practise failures."),
]
HttpPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT", help="Serve /healthz, /readyz and /metrics on this port; default: off."
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="PEM file of this process's certificate; turns on TLS."),
]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM file of its private key.")]
TlsCa = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Clients must show a certificate of these authorities."),
]
Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure", help="Let other machines connect without TLS or without certificates."
    ),
]
HttpHost = Annotated[
    str | None,
    typer.Option(metavar="HOST", help="Host for --http-port to listen on; default: 127.0.0.1."),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="all|latest|ID|tick:N|TIME",
        help="Where to start. A message ID belongs to one vchannel. TIME: 2026-01-02T03:04,"
        " local unless it has a zone, or 10m for ten minutes ago.",
    ),
]
Place = Annotated[
    str,
    typer.Argument(
        metavar="all|latest|tick:N|TIME",
        help="Where to. TIME: 2026-01-02T03:04, local unless it has a zone, or 10m for ten"
        " minutes ago.",
    ),
]
FromCursor = Annotated[
    str,
    typer.Option(
        "--cursor",
        metavar="NAME",
        help="Start where this cursor is, and commit to it what was written; a new one begins"
        " with all.",
    ),
]
AsGroup = Annotated[
    str,
    typer.Option(
        "--group",
        metavar="NAME",
        help="Be a member of this consumer group: what is written is acknowledged, and other"
        " members get the rest. A new group begins with --from.",
    ),
]
