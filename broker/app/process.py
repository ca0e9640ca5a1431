"""One process from its first line to its exit code: logs, signals, the loop, the ready line.

Owns what is the same for every role. Next: broker/app/single.py
"""

import asyncio
import os
import signal
import socket
import sys
from typing import NoReturn

import anyio
import structlog
import uvloop

from broker.app.failures import CannotStart
from broker.app.listening import bind
from broker.app.logs import configure_logs
from broker.app.single import run_broker
from broker.config import Settings, misspelt
from broker.data_folder import DataFolder, DataFolderError, hold

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SWITCH_INTERVAL_S = 0.0005
"""The log's threads ask for the interpreter twice a write; Python's own 5 ms is a whole group."""

log = structlog.get_logger("tidemark")


def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT, then drain. Raises CannotStart; prints the ready line."""
    configure_logs(settings.log_level, settings.log_format)
    for name in misspelt(os.environ):
        log.warning("no such setting: this environment variable is ignored", name=name)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    signal.signal(signal.SIGTERM, _leave)  # until the loop takes over
    try:
        with bind(settings.listen) as bound, hold(settings.data_dir) as folder:
            uvloop.run(_serve(settings, folder, bound))
    except DataFolderError as error:
        raise CannotStart(str(error)) from error


def _leave(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


def _stop(running: anyio.CancelScope) -> None:
    """Once told is enough: a second signal must not cut the drain, nor change the exit code."""
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    running.cancel()


async def _serve(settings: Settings, folder: DataFolder, bound: socket.socket) -> None:
    with anyio.CancelScope() as running:
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, _stop, running)
        async with run_broker(settings, folder, bound) as broker:
            metrics = f" metrics={broker.metrics}" if broker.metrics else ""
            sys.stdout.write(
                f"tidemark ready listen={broker.address} data={settings.data_dir}{metrics}\n"
            )
            sys.stdout.flush()
            await broker.system.wait_failed()
