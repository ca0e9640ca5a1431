"""Imports of a process that has to start fast, because others wait for it.

A coordinator that was killed is missed by all nodes, a node by those that took over its channels,
and an interpreter that starts does little else than import.
"""

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lean_imports() -> Iterator[None]:
    """What is imported in the block takes about a quarter less time, and stays for good.

    structlog loads rich if it can, for tracebacks that we print plain; the collector looks through
    modules that are never garbage, again and again, then and later.
    """
    gc.disable()
    try:
        _import_without("structlog", "rich")
        yield
    finally:
        gc.freeze()
        gc.enable()


def _import_without(name: str, extra: str) -> None:
    """As if `extra` were not installed; whoever wants it later gets it."""
    if extra in sys.modules:
        return
    sys.modules[extra] = None  # type: ignore[assignment] # how Python says: not there
    try:
        importlib.import_module(name)
    finally:
        del sys.modules[extra]
