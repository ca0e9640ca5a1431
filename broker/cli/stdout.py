"""What to do when nobody reads stdout any more: end quietly, as others in a pipeline do.

And when the caller closed it, or its neighbours, before the start.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def open_standard_streams() -> None:
    """Point every standard stream that the caller closed (`>&-`) at nothing.

    Its number would go to the next file or socket opened, which the event loop aborts over, and
    which a stray word on stderr would be written into.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for good


@contextmanager
def until_nobody_reads() -> Iterator[None]:
    """A closed pipe ends the block, and is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more on its way out: let that succeed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
