"""The incarnation whose code is running, so that log lines can name it.

One context variable, set by the cell for its task; tasks and threads started there inherit it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """Path and term of an incarnation."""

    path: str
    term: int


_present: ContextVar[Identity | None] = ContextVar("identity", default=None)


def identity() -> Identity | None:
    """The incarnation whose code is running; None outside of actors."""
    return _present.get()


def assume(who: Identity) -> None:
    """Set the identity of the current task."""
    _present.set(who)


@contextmanager
def assumed(who: Identity) -> Iterator[None]:
    """Run the block with this identity."""
    token = _present.set(who)
    try:
        yield
    finally:
        _present.reset(token)
