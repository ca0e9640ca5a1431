"""Group commit: batches that share one write and one sync, and when each is acknowledged."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from actors import Envelope
from broker.core.log.backlog import Backlog
from broker.model.batch import Durability
from broker.model.message import NewMessage
from broker.node.appender_messages import AppendBatch, AppendOutcome
from broker.node.state.node_limits import NodeLimits
from broker.ports.ticks import RESERVE_COUNT_MAX

BATCH_MESSAGES_MAX = RESERVE_COUNT_MAX // 4
"""A batch takes its ticks from one reservation, plus one tick to close and some for rollbacks.

Each insert into a collection may need two more: one for a segment's id, one to create the segment.
"""

_ALL: Final = frozenset(Durability)
Group = list[Envelope[Any]]


def gather(appends: Sequence[Envelope[Any]], limits: NodeLimits) -> list[Group]:
    """Split waiting batches into groups within the limits. Keeps their order, splits no batch."""
    groups: list[Group] = []
    count = size_bytes = 0
    for envelope in appends:
        assert isinstance(envelope.message, AppendBatch)
        more, more_bytes = envelope.message.ticks, envelope.message.size_bytes
        full = (
            count + more > limits.group_messages_max
            or size_bytes + more_bytes > limits.group_bytes_max
        )
        if full or not groups:
            groups.append([])
            count = size_bytes = 0
        groups[-1].append(envelope)
        count += more
        size_bytes += more_bytes
    return groups


class GroupAcks:
    """Acknowledges the batches of one group, each at its durability level and each once.

    `memory` appends are acknowledged when they have ids and ticks, `os` appends after the write,
    all others after the sync.
    """

    def __init__(self, group: Sequence[Envelope[Any]], backlog: Backlog) -> None:
        self._group = [(each, _batch(each)) for each in group]
        self._backlog = backlog

    def messages(self) -> Sequence[NewMessage]:
        """The messages of all batches, in order."""
        if len(self._group) == 1:
            return self._group[0][1].messages
        return [message for _, batch in self._group for message in batch.messages]

    def sequenced(self, outcomes: Sequence[AppendOutcome]) -> Callable[[], None] | None:
        """Acknowledge `memory` appends; return what to call after the write, if anything."""
        levels = {batch.durability for _, batch in self._group}
        if Durability.MEMORY in levels:
            self._reply(outcomes, (Durability.MEMORY,))
        if Durability.OS in levels:
            return lambda: self._reply(outcomes, (Durability.OS,))
        # Nobody asked for `os`: the log may then write and sync in one system call.
        return None

    def durable(self, outcomes: Sequence[AppendOutcome]) -> None:
        """Acknowledge a lone batch before this returns. The caller must call `finish` next.

        Larger groups wait for `finish`: this saves a lone client one turn of the event loop, but
        would delay the last of many.
        """
        if len(self._group) == 1:
            envelope, _ = self._group[0]
            envelope.reply_at_once(tuple(outcomes))

    def finish(self, outcomes: Sequence[AppendOutcome]) -> None:
        """Acknowledge every batch that was not yet, and count all bytes out of the backlog."""
        self._reply(outcomes, _ALL)
        # Here and not in the caller's task: a caller may be cancelled while its messages wait.
        self._backlog.release(sum([batch.size_bytes for _, batch in self._group]))

    def _reply(self, outcomes: Sequence[AppendOutcome], levels: Collection[Durability]) -> None:
        start = 0
        for envelope, batch in self._group:
            end = start + len(batch.messages)
            if batch.durability in levels:
                envelope.reply(tuple(outcomes[start:end]))  # ignored when replied to before
            start = end


def _batch(envelope: Envelope[Any]) -> AppendBatch:
    assert isinstance(envelope.message, AppendBatch)
    return envelope.message
