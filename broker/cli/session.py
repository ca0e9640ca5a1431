"""Runs a command with a connected client; turns errors into a sentence and an exit code."""

import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from broker.client import DEFAULT_SERVER, Client, TidemarkError, connect
from broker.client.net.waits import LOGGER as WAITS_LOGGER

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

    say_waits(sys.stderr.write)

    async def connected() -> T:
        async with connect(address_of(server)) as client:
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


def address_of(server: str) -> str:
    """The given HOST:PORT, or the default. Ends the program when it is neither."""
    address = server or DEFAULT_SERVER
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        fail(f"{address!r} is not a server address; use HOST:PORT, such as {DEFAULT_SERVER}", USAGE)
    return address


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    try:
        import uvloop
    except ImportError:
        # There is no uvloop for Windows.
        return asyncio.run(work)
    return uvloop.run(work)
