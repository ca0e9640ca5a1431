"""Runs a command with a connected client; turns errors into a sentence and an exit code."""

import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn, TypeVar

from broker.cli.client_connection import ClientConnection, connection
from broker.client import Client, TidemarkError, connect
from broker.client.net.waits import LOGGER as WAITS_LOGGER
from broker.config_file import BadConfig

T = TypeVar("T")

FAILED = 1
USAGE = 2
INTERRUPTED = 130


def with_client(
    server: str,
    work: Callable[[Client], Awaitable[T]],
    *,
    failed: Callable[[str], str] = str,
    interrupted: int = INTERRUPTED,
) -> T:
    """The result of `work`. Ends the program when the server cannot be reached or refuses.

    `failed` turns the text of an error into the sentence to print; `interrupted` is the exit code
    after Ctrl-C.
    """

    chosen = connection_of(server)
    say_waits(_on_stderr)

    async def connected() -> T:
        async with open_client(chosen) as client:
            return await work(client)

    try:
        return _run(connected())
    except TidemarkError as error:
        fail(failed(str(error)))
    except KeyboardInterrupt:
        raise SystemExit(interrupted) from None


def say_waits(write: Callable[[str], object]) -> None:
    """Write a line when the client waits for a connection, and when it has one again."""
    logger = logging.getLogger(WAITS_LOGGER)
    logger.handlers = [_WaitLines(write)]
    logger.propagate = False


def _on_stderr(line: str) -> None:
    # Looked up for each line: a progress bar replaces the stream while it is drawn.
    sys.stderr.write(line)


class _WaitLines(logging.Handler):
    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        self._write(f"tidemark: {record.getMessage()}\n")


def fail(sentence: str, code: int = FAILED) -> NoReturn:
    """Print an error sentence on stderr, and end the program."""
    sys.stderr.write(f"tidemark: {sentence}\n")
    raise SystemExit(code)


def connection_of(server: str) -> ClientConnection:
    """Where to connect to, by `--server` and what stands behind it; else ends the program."""
    try:
        return connection(server)
    except BadConfig as error:
        fail(str(error), USAGE)


def open_client(chosen: ClientConnection) -> AbstractAsyncContextManager[Client]:
    """A client of that connection."""
    return connect(
        chosen.server,
        cluster=chosen.cluster,
        deadlines=chosen.deadlines,
        tls=chosen.tls,
        token=chosen.token,
    )


def address_of(server: str) -> str:
    """The address of the broker, by `--server` and what stands behind it."""
    return connection_of(server).server


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    try:
        import uvloop
    except ImportError:
        # There is no uvloop for Windows.
        return asyncio.run(work)
    return uvloop.run(work)
