"""Ctrl-C and SIGTERM while input is appended: the first ends the reading, the second everything."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from broker.cli.produce.input_file import InputFile

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SIGNALLED = 128
"""Added to the number of a signal, it is the exit code of a program that the signal ended."""


class Interrupts:
    """`code`: the exit code, once there was a signal. `scope`: cancelled by the second one."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.scope = anyio.CancelScope()
        self.source: InputFile | None = None
        self.under_way = False

    def note(self, number: int) -> None:
        """A signal came."""
        if self.code is not None:
            self.scope.cancel()
            return
        self.code = SIGNALLED + number
        if self.source is not None:
            self.source.left = True
        if self.under_way:
            sys.stderr.write("tidemark: waiting for what is being stored; Ctrl-C again ends that\n")


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handles the signals on the running loop until the block ends."""
    found, loop = Interrupts(), asyncio.get_running_loop()
    handled: list[signal.Signals] = []
    try:
        for number in SIGNALS:
            loop.add_signal_handler(number, found.note, number)
            handled.append(number)
    except (NotImplementedError, RuntimeError):
        pass  # not on Windows, nor outside of the main thread: there a signal ends the program
    try:
        yield found
    finally:
        # Where none could be set, to remove one would raise, too.
        for number in handled:
            loop.remove_signal_handler(number)
