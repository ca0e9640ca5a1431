"""Shared and exclusive locks on resource keys, granted first come, first served.

A request names all of its keys and gets them all at once, when none conflicts with a current holder
or an earlier request. This is free of deadlocks, because nobody holds some keys while waiting for
others and the oldest request never waits for a newer one. Conflicting requests are granted in order
of arrival, and requests without a common key never wait for each other.

Why not lock key by key in a fixed order: a request would hold its first keys while it waits for the
next one, and so delay requests that do not conflict with the one it waits for.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NewType

from broker.model.broadcast import ResourceDomain, ResourceKey

LockTicket = NewType("LockTicket", int)
"""A request's place in the queue; later requests have larger tickets."""

ANY_OF_CLUSTER = ResourceKey(ResourceDomain.CLUSTER, "", shared=True)
"""Every request that does not name the cluster holds this, so that an exclusive lock of the whole
cluster waits for all of them."""


def locked_keys(keys: Iterable[ResourceKey]) -> tuple[ResourceKey, ...]:
    """The keys to lock for a request: each once, exclusive if asked for both ways, sorted."""
    wanted: dict[tuple[ResourceDomain, str], bool] = {}
    for key in keys:
        name = (key.domain, key.key)
        wanted[name] = wanted.get(name, True) and key.shared
    if not any(domain is ResourceDomain.CLUSTER for domain, _ in wanted):
        wanted[ANY_OF_CLUSTER.domain, ANY_OF_CLUSTER.key] = True
    return tuple(sorted(ResourceKey(*name, shared) for name, shared in wanted.items()))


@dataclass(frozen=True, slots=True)
class LockRequest:
    """One request, waiting or granted."""

    ticket: LockTicket
    keys: tuple[ResourceKey, ...]
    held: bool


@dataclass(slots=True)
class _Line:
    """All requests that name one key, granted or waiting, in order of arrival."""

    waiting: "OrderedDict[LockTicket, None]" = field(default_factory=OrderedDict)
    exclusive: "OrderedDict[LockTicket, None]" = field(default_factory=OrderedDict)
    everybody: "OrderedDict[LockTicket, None]" = field(default_factory=OrderedDict)

    def lets(self, ticket: LockTicket, *, shared: bool) -> bool:
        """Whether no earlier request of this key conflicts with the ticket."""
        if not shared:
            return next(iter(self.everybody)) == ticket
        # A shared request passes other shared ones, but no exclusive one that came earlier.
        return not self.exclusive or next(iter(self.exclusive)) > ticket


class ResourceLocks:
    """The lock table: `request` keys, `release` them."""

    def __init__(self) -> None:
        self._last = LockTicket(0)
        self._lines: dict[tuple[ResourceDomain, str], _Line] = {}
        self._requests: dict[LockTicket, LockRequest] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def requests(self) -> Sequence[LockRequest]:
        """All requests in order of arrival."""
        return tuple(self._requests.values())

    def holds(self, ticket: LockTicket) -> bool:
        """Whether the request is granted."""
        return ticket in self._requests and self._requests[ticket].held

    def request(self, keys: Iterable[ResourceKey]) -> LockTicket:
        """Queue a request for these keys; `holds` tells whether it was granted at once."""
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
        """Release the keys, or stop waiting; returns the requests granted by it, oldest first.

        An unknown ticket releases nothing.
        """
        request = self._requests.pop(ticket, None)
        if request is None:
            return ()
        # Only requests for these keys can be free now; scanning all of them would make each release
        # slow.
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
        """Waiting requests that this key allows: the first one, or the shared ones in front."""
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
