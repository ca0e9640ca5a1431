"""Starts RabbitMQ with its stream plugin for a benchmark: one node and its epmd, on loopback."""

import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmark.processes import Server, Unavailable, free_port, stop, wait_for

NAME = "RabbitMQ"
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's. The one on PATH is a wrapper that changes to another user and to /var/lib."""
INSTALL = "sudo apt-get install rabbitmq-server"


@contextmanager
def rabbitmq(folder: Path, program: Path = PROGRAM) -> Iterator[Server]:
    """Run RabbitMQ with everything it writes in the folder. Raises Unavailable where it cannot."""
    epmd = shutil.which("epmd")
    if epmd is None or not program.exists():
        missing = "epmd" if program.exists() else str(program)
        raise Unavailable(f"there is no {missing}; install Debian's server with: {INSTALL}")
    try:
        importlib.import_module("rstream")
    except ImportError as error:
        raise Unavailable(f"rstream is not installed: {error}") from error
    place = folder / "rabbitmq"
    place.mkdir()
    ports = free_port(), free_port(), free_port()
    variables = settings(place, *ports)
    with _running([epmd, "-address", "127.0.0.1"], variables, place / "epmd.log") as names:
        # The server starts an epmd that outlives it unless one answers already.
        wait_for(ports[0], names, place / "epmd.log", "epmd")
        with _running([str(program)], variables, place / "log") as process:
            wait_for(ports[2], process, place / "log", NAME)
            yield Server(NAME, process.pid, ("127.0.0.1", ports[2]))


def settings(place: Path, epmd: int, distribution: int, stream: int) -> dict[str, str]:
    """Write the files of a node that uses these ports of loopback alone; its variables."""
    (place / "plugins").write_text("[rabbitmq_stream].\n")
    (place / "rabbitmq.conf").write_text(
        f"listeners.tcp = none\nstream.listeners.tcp.1 = 127.0.0.1:{stream}\n"
        f"stream.advertised_host = 127.0.0.1\nstream.advertised_port = {stream}\n"
    )
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RABBITMQ_", "ERL_", "NOTIFY_SOCKET"))
    }
    return inherited | {
        "HOME": str(place),  # for the cookie of Erlang
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,  # not the machine's /etc/rabbitmq
        "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq.conf"),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
        "RABBITMQ_LOG_BASE": str(place / "logs"),
        "RABBITMQ_MNESIA_BASE": str(place / "data"),
        "RABBITMQ_NODENAME": f"bench-{stream}@localhost",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, without a shell above it
    }


@contextmanager
def _running(
    command: list[str], variables: dict[str, str], log: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield process
    finally:
        stop(process)
