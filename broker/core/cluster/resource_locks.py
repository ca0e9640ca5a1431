"""Who holds which resource, and who waits: shared and exclusive locks, first come, first served.

Owns the order. A request names all its keys at once and gets them all at once, when none of them
conflicts with a holder or with anybody who asked before. So nobody holds one key while waiting for
another, and the oldest request can always go on: there is no deadlock, whatever the keys. Also
nobody is overtaken by somebody it conflicts with, so that conflicting requests are served in the
order they came in, while those that share nothing never wait for each other.
Why not key by key in one order: that needs waiting with keys in hand, which serialises requests
that do not conflict, behind one that does.
Next: broker/coordinator/broadcast/broadcaster.py
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NewType

from broker.model.broadcast import ResourceDomain, ResourceKey

LockTicket = NewType("LockTicket", int)
"""A request's place in the line; larger ones came later."""

ANY_OF_CLUSTER = ResourceKey(ResourceDomain.CLUSTER, "", shared=True)
"""What everybody holds who does not name the cluster: one who wants all of it waits for them."""


def locked_keys(keys: Iterable[ResourceKey]) -> tuple[ResourceKey, ...]:
    """The keys that are locked for these: each once, exclusive if either way, in one order."""
    wanted: dict[tuple[ResourceDomain, str], bool] = {}
    for key in keys:
        name = (key.domain, key.key)
        wanted[name] = wanted.get(name, True) and key.shared
    if not any(domain is ResourceDomain.CLUSTER for domain, _ in wanted):
        wanted[ANY_OF_CLUSTER.domain, ANY_OF_CLUSTER.key] = True
    return tuple(sorted(ResourceKey(*name, shared) for name, shared in wanted.items()))


@dataclass(frozen=True, slots=True)
class LockRequest:
    """One place in the line, for people and tests to look at."""

    ticket: LockTicket
    keys: tuple[ResourceKey, ...]
    held: bool


@dataclass(slots=True)
class _Line:
    """Everybody who named one key, held or waiting, in order."""

    waiting: "OrderedDict[LockTicket, None]" = field(default_factory=OrderedDict)
    exclusive: "OrderedDict[LockTicket, None]" = field(default_factory=OrderedDict)
    everybody: "OrderedDict[LockTicket, None]" = field(default_factory=OrderedDict)

    def lets(self, ticket: LockTicket, *, shared: bool) -> bool:
        """Whether nobody before this ticket is in its way."""
        if not shared:
            return next(iter(self.everybody)) == ticket
        return not self.exclusive or next(iter(self.exclusive)) > ticket


class ResourceLocks:
    """See the module. `request` and `release` are all there is to it."""

    def __init__(self) -> None:
        self._last = LockTicket(0)
        self._lines: dict[tuple[ResourceDomain, str], _Line] = {}
        self._requests: dict[LockTicket, LockRequest] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def requests(self) -> Sequence[LockRequest]:
        """Everybody, in the order they came."""
        return tuple(self._requests.values())

    def holds(self, ticket: LockTicket) -> bool:
        """Whether the request has its keys now."""
        return ticket in self._requests and self._requests[ticket].held

    def request(self, keys: Iterable[ResourceKey]) -> LockTicket:
        """Stand in line for these; ask `holds` whether they were free at once."""
        ticket = self._last = LockTicket(self._last + 1)
        request = LockRequest(ticket, locked_keys(keys), held=False)
        self._requests[ticket] = request
        for key in request.keys:
            line = self._lines.setdefault((key.domain, key.key), _Line())
            line.everybody[ticket] = None
            line.waiting[ticket] = None
            if not key.shared:
                line.exclusive[ticket] = None
        self._grant([ticket])
        return ticket

    def release(self, ticket: LockTicket) -> tuple[LockTicket, ...]:
        """Let go, or stop waiting; gives those who got all of their keys by it, oldest first.

        A ticket that is not known any more releases nothing.
        """
        request = self._requests.pop(ticket, None)
        if request is None:
            return ()
        touched: set[LockTicket] = set()
        for key in request.keys:
            name = (key.domain, key.key)
            line = self._lines[name]
            for part in (line.everybody, line.waiting, line.exclusive):
                part.pop(ticket, None)
            if not line.everybody:
                del self._lines[name]
            touched.update(self._next_in(line))
        return self._grant(sorted(touched))

    def _next_in(self, line: _Line) -> Iterable[LockTicket]:
        """Those who wait and whom this key does not stop: one, or all shared ones in front."""
        first_exclusive = next(iter(line.exclusive), None)
        for ticket in line.waiting:
            if first_exclusive is not None and ticket >= first_exclusive:
                if ticket == next(iter(line.everybody)):
                    yield ticket
                return
            yield ticket

    def _grant(self, tickets: Iterable[LockTicket]) -> tuple[LockTicket, ...]:
        granted: list[LockTicket] = []
        for ticket in tickets:
            request = self._requests[ticket]
            if all(self._lines[key.domain, key.key].lets(ticket, shared=key.shared)
                   for key in request.keys):  # fmt: skip
                self._requests[ticket] = LockRequest(ticket, request.keys, held=True)
                for key in request.keys:
                    self._lines[key.domain, key.key].waiting.pop(ticket)
                granted.append(ticket)
        return tuple(granted)
