"""Counts the open connections of a listener, and of each peer; turns away those beyond a limit.

A peer that has too many of its own learns it: it gets GOAWAY with a text. When all places are taken
a connection is reset instead, because then strangers are expected, and an answer costs.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from struct import Struct
from typing import Generic, Protocol, TypeVar

from grpclib.protocol import Peer
from h2.errors import ErrorCodes

from broker.transport.tls_server import Refused

TEXT_BYTES_MAX = 512
LINGER_S = 0.5
"""How long a peer that is told why may take to read it; a close at once would discard it unread."""
OF_ALL, OF_ONE = "CONNECTIONS_MAX", "CONNECTIONS_OF_IDENTITY"
"""What the audit is told of a connection that is turned away."""
# HTTP/2 frames: an empty SETTINGS, which must come first, then GOAWAY with no stream processed.
_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_GOAWAY = Struct(">BHBBLLL")
_GOAWAY_TYPE, _GOAWAY_BYTES = 7, 8

Named = Callable[[Peer], str]
"""Whose connection it is."""
TurnsAway = Callable[[str, int], str]
"""Why a peer of this name gets no connection beside the open ones, of which it has so many; ""."""


class OpenConnection(Protocol):
    """An open connection."""

    @property
    def has_calls(self) -> bool:
        """Whether a request was read and not answered yet."""
        ...

    def hang_up(self, reason: str) -> None:
        """Say goodbye, then close."""
        ...

    def abort(self) -> None:
        """Reset it."""
        ...


C = TypeVar("C", bound=OpenConnection)


class OpenConnections(Generic[C]):
    """Those of one listener. `connections_max` may change; open connections stay."""

    def __init__(self, connections_max: int, tell_refused: Refused) -> None:
        self.connections_max = connections_max
        self.refused = 0
        """How many were turned away."""
        self.accepting = True
        self._tell_refused = tell_refused
        self._named: Named = _unnamed
        self._turns_away: TurnsAway = _welcomes
        self._names: dict[C, str] = {}
        self._counts: Counter[str] = Counter()
        self._leaving: dict[C, asyncio.Transport] = {}
        self._gone = asyncio.Event()
        self._gone.set()

    def __len__(self) -> int:
        return len(self._names)

    def limit_each(self, named: Named, turns_away: TurnsAway) -> None:
        """Ask `turns_away` about every connection that comes from now on."""
        self._named, self._turns_away = named, turns_away

    def all(self) -> list[C]:
        """Those that are open now."""
        return list(self._names)

    def admit(self, connection: C, wire: asyncio.Transport) -> bool:
        """Count a connection; False, and it is closed, when there are too many."""
        peer = Peer(wire)
        if not self.accepting or len(self._names) + len(self._leaving) >= self.connections_max:
            self.refused += 1
            if self.accepting:
                self._tell_refused(_address(peer), OF_ALL)
            wire.abort()
            return False
        name = self._named(peer)
        why = self._turns_away(name, self._counts[name])
        if why:
            self.refused += 1
            self._tell_refused(_address(peer), OF_ONE)
            self._leaving[connection] = wire
            self._gone.clear()
            _tell_goodbye(wire, why)
            return False
        self._names[connection] = name
        self._counts[name] += 1
        self._gone.clear()
        return True

    def forget(self, connection: C) -> None:
        """Stop counting a connection that is lost; nothing when it was not admitted."""
        self._leaving.pop(connection, None)
        name = self._names.pop(connection, None)
        if name is not None:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]
        if not self._names and not self._leaving:
            self._gone.set()

    async def wait_until_gone(self) -> None:
        """Wait until no connection is open; those that are turned away just now are reset."""
        for wire in self._leaving.values():
            wire.abort()
        await self._gone.wait()


def _unnamed(_: Peer) -> str:
    return ""


def _welcomes(_: str, __: int) -> str:
    return ""


def _address(peer: Peer) -> str:
    address = peer.addr() or ("", 0)
    return f"{address[0]}:{address[1]}"


def _tell_goodbye(wire: asyncio.Transport, why: str) -> None:
    wire.write(_goodbye(why))
    if wire.can_write_eof():  # not with TLS: there the peer closes, or the timer
        wire.write_eof()
    asyncio.get_running_loop().call_later(LINGER_S, wire.abort)


def _goodbye(why: str) -> bytes:
    text = why.encode("ascii", "replace")[:TEXT_BYTES_MAX]
    size = _GOAWAY_BYTES + len(text)
    calm = int(ErrorCodes.ENHANCE_YOUR_CALM)
    head = _GOAWAY.pack(size >> 16, size & 0xFFFF, _GOAWAY_TYPE, 0, 0, 0, calm)
    return _SETTINGS + head + text
