"""Finds the callbacks of broadcasts that a setting names: a mapping in a Python module.

Owns the import.
"""

from collections.abc import Mapping
from importlib import import_module

from broker.app.process_errors import CannotStart
from broker.ports.callbacks import Callbacks

NONE: Callbacks = {}


def load_callbacks(named: str) -> Callbacks:
    """The mapping at `MODULE:NAME`, from message type to callback; none for "".

    Raises CannotStart saying what is wrong with it.
    """
    if not named:
        return NONE
    module, _, name = named.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise _wrong(named, str(error)) from error
    if not isinstance(found, Mapping) or not all(
        isinstance(kind, int) and callable(callback) for kind, callback in found.items()
    ):
        raise _wrong(named, "it is no mapping from message types to async functions")
    return {int(kind): callback for kind, callback in found.items()}


def _wrong(named: str, why: str) -> CannotStart:
    return CannotStart(
        f"the callbacks of broadcasts cannot be taken from {named!r}: {why}; TIDEMARK_CALLBACKS is"
        " MODULE:NAME of a mapping from message type to callback"
    )
