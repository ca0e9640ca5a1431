"""`tidemark serve`, `coordinator` and `node`: run a process."""

from typing import Annotated

import typer

from broker.cli.commands.flags import (
    Advertise,
    AllowChaos,
    Cluster,
    Config,
    DataDir,
    HttpHost,
    HttpPort,
    Insecure,
    Listen,
    LogFormat,
    Meta,
    PChannels,
    TlsCa,
    TlsCert,
    TlsKey,
    Wal,
)
from broker.cli.fast_imports import fast_imports
from broker.cli.global_options import chosen
from broker.process_signals import SIGNALS


def serve(  # noqa: PLR0913 - each is an option of the command line
    data_dir: DataDir = None,
    meta: Meta = None,
    wal: Wal = None,
    listen: Listen = None,
    advertise: Advertise = None,
    cluster: Cluster = None,
    pchannels: PChannels = None,
    log_format: LogFormat = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Also start this many node processes, and restart those that die."
        ),
    ] = None,
    allow_chaos: AllowChaos = None,
    http_port: HttpPort = None,
    http_host: HttpHost = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    insecure: Insecure = None,
    config: Config = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Every setting can also be set as TIDEMARK_<NAME> in the environment, or in the file of --config;
    a flag goes before the environment, which goes before the file. broker/cli/README.md lists them.
    """
    SIGNALS.install()
    with fast_imports():
        from broker.cli.serving import run_server

    run_server(
        {
            "config": config or chosen().config,
            "data_dir": data_dir,
            "meta": meta,
            "wal": wal,
            "listen": listen,
            "advertise": advertise,
            "cluster": cluster,
            "pchannels": pchannels,
            "allow_chaos": allow_chaos,
            "http_port": http_port,
            "http_host": http_host,
            "tls_cert": tls_cert,
            "tls_key": tls_key,
            "tls_ca": tls_ca,
            "insecure": insecure,
            "log_format": log_format,
            "nodes": nodes,
        }
    )


def coordinator(  # noqa: PLR0913 - each is an option of the command line
    data_dir: DataDir = None,
    meta: Meta = None,
    wal: Wal = None,
    listen: Listen = None,
    advertise: Advertise = None,
    cluster: Cluster = None,
    pchannels: PChannels = None,
    log_format: LogFormat = None,
    allow_chaos: AllowChaos = None,
    http_port: HttpPort = None,
    http_host: HttpHost = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    insecure: Insecure = None,
    config: Config = None,
) -> None:
    """Run only the coordinator; clients connect to it. Start its nodes with `tidemark node`.

    While another coordinator leads the data folder, this one stands by for it.
    """
    SIGNALS.install()
    with fast_imports():
        from broker.cli.serving import run_coordinator

    run_coordinator(
        {
            "config": config or chosen().config,
            "data_dir": data_dir,
            "meta": meta,
            "wal": wal,
            "listen": listen,
            "advertise": advertise,
            "cluster": cluster,
            "pchannels": pchannels,
            "log_format": log_format,
            "allow_chaos": allow_chaos,
            "http_port": http_port,
            "http_host": http_host,
            "tls_cert": tls_cert,
            "tls_key": tls_key,
            "tls_ca": tls_ca,
            "insecure": insecure,
        }
    )


def node(  # noqa: PLR0913 - each is an option of the command line
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,...]",
            help="Address of the coordinator; of several, all that may lead.",
        ),
    ] = None,
    node_id: Annotated[
        int | None, typer.Option(help="ID of this node, from 1 on; default: 1.")
    ] = None,
    data_dir: DataDir = None,
    meta: Meta = None,
    wal: Wal = None,
    listen: Listen = None,
    advertise: Advertise = None,
    cluster: Cluster = None,
    log_format: LogFormat = None,
    allow_chaos: AllowChaos = None,
    http_port: HttpPort = None,
    http_host: HttpHost = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    insecure: Insecure = None,
    config: Config = None,
    # For the nodes that `serve --nodes` starts: they stop when their parent closes stdin or dies.
    leash: Annotated[bool, typer.Option("--leash", hidden=True)] = False,
) -> None:
    """Run only a node, on its coordinator's data folder; on another host, on one of its own."""
    SIGNALS.install()
    with fast_imports():
        from broker.cli.serving import run_node

    run_node(
        {
            "config": config or chosen().config,
            "coordinator": coordinator,
            "node_id": node_id,
            "data_dir": data_dir,
            "meta": meta,
            "wal": wal,
            "listen": listen,
            "advertise": advertise,
            "cluster": cluster,
            "log_format": log_format,
            "allow_chaos": allow_chaos,
            "http_port": http_port,
            "http_host": http_host,
            "tls_cert": tls_cert,
            "tls_key": tls_key,
            "tls_ca": tls_ca,
            "insecure": insecure,
        },
        leashed=leash,
    )
