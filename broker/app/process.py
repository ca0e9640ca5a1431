"""Runs a process of any role until a signal: logs, locks, event loop, ready line, stop."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial

import anyio
import structlog
import uvloop

from broker.app.advertised import with_advertised
from broker.app.leading.standing_by import run_candidate
from broker.app.leash import STDIN, Leash
from broker.app.listening import bind
from broker.app.logs import configure_logs
from broker.app.process_errors import CannotStart
from broker.app.reloading import Load, Reloads
from broker.app.run_coordinator import run_coordinator
from broker.app.run_node import run_node
from broker.app.run_single import run_broker
from broker.app.running_process import Broker
from broker.app.security.secured import refuse_exposed
from broker.app.systemd_reports import READY, STOPPING, SystemdReports
from broker.config import misspelt
from broker.data_folder import DataFolder, DataFolderError, hold, hold_node, share
from broker.process_settings import Settings
from broker.process_signals import SIGNALS

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may hold the interpreter while another waits. The log's threads need it twice
for each write, and Python's default of 5 ms is as long as a whole group commit."""

log = structlog.get_logger("tidemark")


Role = Callable[[Settings, DataFolder, socket.socket], AbstractAsyncContextManager[Broker]]
Hold = Callable[[Settings], AbstractContextManager[DataFolder]]


def serve(settings: Settings, load: Load | None = None) -> None:
    """Run a broker, and the nodes that the settings ask for, until SIGTERM or SIGINT; then drain.

    Prints the ready line when it can serve. SIGHUP reads the settings again, by `load`. Raises
    CannotStart, or LeadLost or CannotGoOn later.
    """
    role = run_coordinator if settings.nodes else run_broker
    _run(settings, _hold_all, role, Reloads(settings, load, None))


def serve_coordinator(settings: Settings, load: Load | None = None) -> None:
    """The same for a coordinator whose nodes are started separately.

    While another coordinator leads it stands by, and prints a line that says so; the ready line
    follows when it leads.
    """
    systemd = SystemdReports()

    def standing_by(listen: str, http: str) -> None:
        sys.stdout.write(_line("tidemark standby", settings, listen, http))
        sys.stdout.flush()
        systemd.report(READY)

    role = partial(run_candidate, standing_by=standing_by)
    _run(settings, _share, role, Reloads(settings, load, None), systemd=systemd)


def serve_node(settings: Settings, load: Load | None = None, *, leashed: bool) -> None:
    """The same for a node. `leashed`: stop also when stdin is closed, as when the parent dies."""
    if not (settings.coordinator or settings.meta):
        raise CannotStart(
            "a node needs a coordinator; pass --coordinator HOST:PORT, or --meta etcd://HOST/PREFIX"
            " where coordinators are announced"
        )
    reloads = Reloads(settings, load, settings.node_id)
    _run(settings, _hold_node, run_node, reloads, leashed=leashed)


def _hold_all(settings: Settings) -> AbstractContextManager[DataFolder]:
    return hold(settings.data_dir)


def _share(settings: Settings) -> AbstractContextManager[DataFolder]:
    return share(settings.data_dir)


def _hold_node(settings: Settings) -> AbstractContextManager[DataFolder]:
    return hold_node(settings.data_dir, settings.node_id)


def _run(
    settings: Settings,
    hold_folder: Hold,
    role: Role,
    reloads: Reloads,
    *,
    leashed: bool = False,
    systemd: SystemdReports | None = None,
) -> None:
    SIGNALS.install()
    systemd = systemd or SystemdReports()
    configure_logs(settings.log_level, settings.log_format, node=reloads.node)
    for name in misspelt(os.environ):
        log.warning("ignoring an environment variable that is not a setting", name=name)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        # The port first: if it is taken, nothing has been made in the data folder yet.
        with bind(settings.listen) as bound:
            settings = with_advertised(settings, bound)
            refuse_exposed(settings)
            with hold_folder(settings) as folder:
                SIGNALS.defer()
                running = role(settings, folder, bound)
                uvloop.run(_serve(settings, running, reloads, systemd, leashed=leashed))
    except DataFolderError as error:
        raise CannotStart(str(error)) from error


async def _serve(
    settings: Settings,
    role: AbstractAsyncContextManager[Broker],
    reloads: Reloads,
    systemd: SystemdReports,
    *,
    leashed: bool,
) -> None:
    loop = asyncio.get_running_loop()
    with anyio.CancelScope() as running:
        SIGNALS.attach(running.cancel, reloads.reload)

        def leash_ended() -> None:
            # The parent, which holds its other end for as long as it lives, has gone.
            loop.remove_reader(STDIN)
            SIGNALS.stop()

        if leashed:
            loop.add_reader(STDIN, Leash(leash_ended, reloads.from_parent).read)
        async with role as broker:
            reloads.started(broker)
            sys.stdout.write(_ready_line(settings, broker))
            sys.stdout.flush()  # into a pipe it is block-buffered, and somebody waits for the line
            systemd.report(READY)
            try:
                await broker.until_ended()
            finally:
                systemd.report(STOPPING)


def _ready_line(settings: Settings, broker: Broker) -> str:
    settings = settings.model_copy(update={"advertise": broker.address})
    return _line("tidemark ready", settings, broker.listen, broker.http)


def _line(what: str, settings: Settings, listen: str, http: str) -> str:
    words = [what, f"listen={listen}"]
    if settings.advertise and settings.advertise != listen:
        words.append(f"advertise={settings.advertise}")
    words.append(f"data={settings.data_dir}")
    if http:
        words.append(f"http={http}")
    return " ".join(words) + "\n"
