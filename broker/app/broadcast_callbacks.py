"""Loads the callbacks of broadcasts that a setting names: a mapping in a Python module."""

from collections.abc import Mapping
from importlib import import_module

from broker.app.process_errors import CannotStart
from broker.ports.callbacks import Callbacks

NONE: Callbacks = {}


def load_callbacks(named: str) -> Callbacks:
    """The mapping at `MODULE:NAME`, from message type to callback; none for "".

    Raises CannotStart when it cannot be imported or has another type.
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
        raise _wrong(named, "it is not a mapping from message types to async functions")
    return {int(kind): callback for kind, callback in found.items()}


def _wrong(named: str, why: str) -> CannotStart:
    return CannotStart(
        f"cannot load the callbacks of broadcasts from {named!r}: {why}; set TIDEMARK_CALLBACKS to"
        " MODULE:NAME of a mapping from message type to async function"
    )
