"""What an attack is: which broker it needs, what it does until it is cancelled, what it may get."""

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Got = Counter[str]
"""What the attacker received, in words, and how often."""


class Setup(StrEnum):
    """The broker that is attacked."""

    PLAIN = "plain"
    TLS = "tls"
    """Asks for certificates."""
    AUTH = "auth"
    """Asks for tokens, its own or JWTs of a provider."""


@dataclass(frozen=True, slots=True)
class Target:
    """What attackers know of the broker. Only plain values: it is passed to their process."""

    port: int
    http_port: int = 0
    pchannel: str = ""
    term: int = 0
    rows_vchannel: str = ""
    """Of a collection with the schema of `packed_bombs`."""
    ca: str = ""
    """File with the authority of the server's certificate; "" without TLS."""
    signed: tuple[str, ...] = ()
    """JWTs with hostile claims that the identity provider has signed."""


Run = Callable[[Target, Got], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Attack:
    """`run` goes on until it is cancelled. `gets`: all that it may be answered with."""

    run: Run
    setup: Setup
    gets: frozenset[str]

    @property
    def name(self) -> str:
        return self.run.__name__
