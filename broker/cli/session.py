"""Runs one command's work with a connected client, and turns errors into a sentence and a code.

It owns the event loop of a command.
"""

import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from broker.client import DEFAULT_SERVER, Client, TidemarkError, connect

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
    """What `work` gives. Ends the program when the server is not there or refuses.

    `failed` makes the sentence to print out of the error's own; `interrupted` is the exit code
    after Ctrl-C.
    """

    async def connected() -> T:
        async with connect(address_of(server)) as client:
            return await work(client)

    try:
        return _run(connected())
    except TidemarkError as error:
        fail(failed(str(error)))
    except KeyboardInterrupt:
        raise SystemExit(interrupted) from None


def fail(sentence: str, code: int = FAILED) -> NoReturn:
    """Say on stderr why nothing came of it, and end the program."""
    sys.stderr.write(f"tidemark: {sentence}\n")
    raise SystemExit(code)


def address_of(server: str) -> str:
    """HOST:PORT of the server asked for, or of the usual one. Ends the program for any other."""
    address = server or DEFAULT_SERVER
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        fail(f"{address!r} is no server; give HOST:PORT, such as {DEFAULT_SERVER}", USAGE)
    return address


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
