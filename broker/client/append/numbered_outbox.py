"""An outbox whose appends are batches with numbers, so that sending one again stores it once.

Pure. It owns the name and the numbers that go on each batch. A batch keeps its number over every
stream; it gets another one, under another name, only when it is certain that it was never stored.
Next: broker/client/append/batch_producer.py
"""

from collections.abc import Callable

from broker.client.append.outbox import Outbox, PendingAppend, SendLimits, W
from schemas.batches import stamp

IN_FLIGHT_MAX = 16
"""Batches without an answer; a server remembers at least so many of each producer."""


class NumberedOutbox(Outbox[W]):
    """All batches of one pchannel that have no answer yet; `new_name` gives names never used."""

    def __init__(self, limits: SendLimits, new_name: Callable[[], str]) -> None:
        super().__init__(limits, IN_FLIGHT_MAX)
        self._new_name = new_name
        self._name = new_name()
        self._next_sequence = 0

    def out_of_sequence(self, request_id: int, expected: int) -> PendingAppend[W] | None:
        """The server will not take the number of a batch, and says which one it expects.

        The batch stays here, to be sent under another name, when that cannot store it twice: it
        was left out by the server, or never sent before. Otherwise it is given back to be failed
        as unknown.
        """
        pending = self.answered(request_id)
        if pending is None:
            return None
        assert pending.stamp is not None, "it was sent"
        name, sequence = pending.stamp
        if pending.unanswered and not 0 < expected <= sequence:
            return pending
        if name == self._name:
            self._name, self._next_sequence = self._new_name(), 0
        pending.stamp = None
        self._return(pending)
        return None

    def stamp_of(self, request_id: int) -> bytes:
        """What goes in front of a request that is on its way, to say its number."""
        number = self._in_flight[request_id].stamp
        assert number is not None, "it was sent"
        return stamp(*number)

    def _as_sent(self, pending: PendingAppend[W]) -> bytes:
        if pending.stamp is None:
            pending.stamp = self._name, self._next_sequence
            self._next_sequence += pending.count
        return pending.message
