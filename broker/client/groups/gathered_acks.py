"""Acknowledgements of one stream: while some are on their way, later ones gather.

Once those are answered, the gathered ones wait for as many as were answered, until `WANTED_MAX` are
together, and for `LINGER_S` at the most. So a member that acknowledges many batches at a time has
them written and synced together, and one that awaits each before the next never waits for more. As
Nagle's algorithm does with small packets (RFC 896), with the limit of Kafka's `linger.ms`. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker.client.groups.settle_request import SettleRequest

FLIGHTS_MAX: Final = 1
"""With two at a time half as many came together, and a member took a tenth less in a second."""
TOGETHER_MAX: Final = 1000
WANTED_MAX: Final = 8
"""More save little, and a program that has a limit would wait for them."""
LINGER_S: Final = 0.01
"""At 400 batches a second five come together then, and without it two: each write of them costs the
broker a millisecond of CPU."""


@dataclass(slots=True)
class _Flight:
    """What was sent together. `left`: those that are not answered yet."""

    size: int
    left: int


class GatheredAcks:
    """Which acknowledgements are on their way, and which wait for them."""

    def __init__(self) -> None:
        # Those that were sent together are one flight, until the last of them is over.
        self._flights: dict[int, _Flight] = {}
        self._waiting: dict[int, SettleRequest] = {}
        self._open = 0
        self._wanted = 0
        """So many go together, unless they have waited for long enough."""

    def admit(self, request: SettleRequest) -> Sequence[SettleRequest]:
        """What goes now, in this order; nothing if the request is kept.

        What gives back, rejects or acknowledges in a transaction goes at once, behind all that is
        kept: "what is left of the lease" must not hold what was acknowledged before.
        """
        if request.is_about_time:
            return (request,)
        if not request.is_plain_ack:
            return [*self.release(), request]
        self._waiting[request.number] = request
        return self.depart() if self._goes_now() else ()

    def release(self) -> list[SettleRequest]:
        """All that is kept; it goes now."""
        together = list(self._waiting.values())
        self._waiting.clear()
        self._fly(together)
        return together

    def withdraw(self, number: int) -> bool:
        """Give it up if it is kept; True: it was never sent, and will not be."""
        return self._waiting.pop(number, None) is not None

    def over(self, number: int) -> float | None:
        """It was answered, or nobody waits for it: in how many seconds to call `depart`, if so."""
        self.withdraw(number)
        flight = self._flights.pop(number, None)
        if flight is None:
            return None
        flight.left -= 1
        if flight.left:
            return None
        self._open -= 1
        self._wanted = min(len(self._waiting) + flight.size, WANTED_MAX)
        if self._open >= FLIGHTS_MAX or self._wanted <= 1:
            return None
        return LINGER_S if len(self._waiting) < self._wanted else 0.0

    def depart(self) -> Sequence[SettleRequest]:
        """What goes now, all together: enough are there, or have waited for long enough."""
        if self._open >= FLIGHTS_MAX:
            return ()
        self._wanted = 0
        together = list(self._waiting.values())[:TOGETHER_MAX]
        for each in together:
            del self._waiting[each.number]
        self._fly(together)
        return together

    def _goes_now(self) -> bool:
        return self._open < FLIGHTS_MAX and len(self._waiting) >= self._wanted

    def _fly(self, together: Sequence[SettleRequest]) -> None:
        if together:
            self._open += 1
            flight = _Flight(len(together), len(together))
            for each in together:
                self._flights[each.number] = flight
