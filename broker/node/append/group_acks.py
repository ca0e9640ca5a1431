"""The askers of one group of appends: what each is told, and when.

Owns the order of the levels: who asked for no more than a place in the log is told at once, who
asked for the operating system when that has the group, everybody else when it is synced. Each asker
is told once, whatever happens later. Never decides what becomes of a message.
Next: broker/node/append/appender.py
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from actors import Envelope
from broker.core.log.backlog import Backlog
from broker.model.batch import Durability
from broker.model.message import NewMessage
from broker.node.appender_messages import AppendBatch, AppendOutcome

_ALL: Final = frozenset(Durability)


class Answers:
    """For one group, whose batches wait in `group`."""

    def __init__(self, group: Sequence[Envelope[Any]], backlog: Backlog) -> None:
        self._group = [(each, _batch(each)) for each in group]
        self._backlog = backlog

    def messages(self) -> Sequence[NewMessage]:
        """Those of all batches, in order."""
        if len(self._group) == 1:
            return self._group[0][1].messages
        return [message for _, batch in self._group for message in batch.messages]

    def placed(self, outcomes: Sequence[AppendOutcome]) -> Callable[[], None] | None:
        """The messages have their ids and ticks. What to call when the system has them, if any."""
        levels = {batch.durability for _, batch in self._group}
        if Durability.MEMORY in levels:
            self._reply(outcomes, (Durability.MEMORY,))
        if Durability.OS in levels:
            return lambda: self._reply(outcomes, (Durability.OS,))
        return None

    def stored(self, outcomes: Sequence[AppendOutcome]) -> None:
        """They would survive. The asker of a group that has no other is told before this returns.

        Then `settled` follows, before anybody else has a turn.
        """
        if len(self._group) == 1:
            envelope, _ = self._group[0]
            envelope.reply_at_once(tuple(outcomes))

    def settled(self, outcomes: Sequence[AppendOutcome]) -> None:
        """Nothing more will happen to them: who still waits is told, and all are counted out."""
        self._reply(outcomes, _ALL)
        self._backlog.release(sum([batch.size_bytes for _, batch in self._group]))

    def _reply(self, outcomes: Sequence[AppendOutcome], levels: Collection[Durability]) -> None:
        start = 0
        for envelope, batch in self._group:
            end = start + len(batch.messages)
            if batch.durability in levels:
                envelope.reply(tuple(outcomes[start:end]))
            start = end


def _batch(envelope: Envelope[Any]) -> AppendBatch:
    assert isinstance(envelope.message, AppendBatch)
    return envelope.message
