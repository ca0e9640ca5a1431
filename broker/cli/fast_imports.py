"""Speeds up the imports of a server process.

After a kill the cluster waits for the new process, and a starting interpreter mostly imports.
"""

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fast_imports() -> Iterator[None]:
    """Make the imports in the block take about a quarter less time.

    structlog would import rich, for tracebacks that we print plain; and the garbage collector would
    scan modules, which are never garbage, again and again, now and later.
    """
    gc.disable()
    try:
        _import_without("structlog", "rich")
        yield
    finally:
        gc.freeze()
        gc.enable()


def _import_without(name: str, extra: str) -> None:
    """Import `name` as if `extra` were not installed; later imports of `extra` succeed."""
    if extra in sys.modules:
        return
    sys.modules[extra] = None  # type: ignore[assignment] # None makes an import fail
    try:
        importlib.import_module(name)
    finally:
        del sys.modules[extra]
