"""Handles standard streams that are closed, before the start or while the command runs."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def open_standard_streams() -> None:
    """Open /dev/null for every standard stream that the caller closed (`>&-`).

    Otherwise the next file or socket would get its number: the event loop aborts then, and output
    to stderr would be written into that file.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - stays open


@contextmanager
def end_on_closed_pipe() -> Iterator[None]:
    """End the block without an error when stdout is a pipe that its reader has closed."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout again at exit, which must succeed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def exit_at_once() -> Iterator[None]:
    """End the program where the block ends, without the interpreter's own end.

    For what reads through Arrow: threads of Arrow read ahead, and such a thread may be inside
    Python at the end. The interpreter then ends the thread, for which C++ aborts the process.
    """
    code: str | int | None = 0
    try:
        yield
    except SystemExit as ended:
        code = ended.code or 0
    with end_on_closed_pipe():
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)
