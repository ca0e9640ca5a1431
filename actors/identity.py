"""Which incarnation the code that runs now belongs to, so that a line of a log can say it.

Owns one context variable. The cell sets it for its task; tasks and threads started from there
inherit it. It decides nothing and knows no logging library.
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
    """Whose code asks; None outside of every actor."""
    return _present.get()


def assume(who: Identity) -> None:
    """From now on the present task is the work of this incarnation."""
    _present.set(who)


@contextmanager
def assumed(who: Identity) -> Iterator[None]:
    """What is done inside is done on behalf of this incarnation."""
    token = _present.set(who)
    try:
        yield
    finally:
        _present.reset(token)
