"""Specifications of supervision trees, as validated values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from actors.actor import Actor
from actors.mailbox import MailboxSpec
from actors.strategy import Backoff, Restart, Strategy


class TermSource(Protocol):
    """Source of terms that must survive the process."""

    async def next_term(self, path: str) -> int:
        """A term above every earlier one, durably recorded when this returns.

        An exception counts as a failed start of the child.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to build and run one actor.

    `patient`: failed starts are retried without limit, with capped backoff, and do not count as
    restarts.
    """

    name: str
    build: Callable[[], Actor[Any]]
    mailbox: MailboxSpec = MailboxSpec()
    restart: Restart = Restart.PERMANENT
    terms: TermSource | None = None
    start_deadline_s: float = 30.0
    stop_deadline_s: float = 5.0
    patient: bool = False

    def __post_init__(self) -> None:
        """Refuse a name that cannot be part of a path."""
        _check_name(self.name)


@dataclass(frozen=True, slots=True)
class SupervisorSpec:
    """A supervisor and its first children, in start order.

    After more than `restarts_max` restarts within `window_s` seconds it fails upward.
    """

    name: str
    strategy: Strategy = Strategy.ONE_FOR_ONE
    children: "tuple[ChildSpec | SupervisorSpec, ...]" = ()
    restarts_max: int = 5
    window_s: float = 30.0
    backoff: Backoff = Backoff()
    restart: Restart = Restart.PERMANENT

    def __post_init__(self) -> None:
        """Refuse bad and repeated names."""
        _check_name(self.name)
        names = [child.name for child in self.children]
        if len(set(names)) != len(names):
            raise ValueError(f"children of {self.name} share a name: {sorted(names)}")


AnySpec = ChildSpec | SupervisorSpec


def _check_name(name: str) -> None:
    if not name or "/" in name:
        raise ValueError(f"bad name {name!r}: it must not be empty or contain '/'")
