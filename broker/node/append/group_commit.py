"""Group commit: batches that share one write and one sync, and when each is acknowledged."""

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Any, Final

from actors import Envelope
from broker.core.log.backlog import Backlog
from broker.model.batch import Durability
from broker.model.message import NewMessage
from broker.node.appender_messages import (
    AppendBatch,
    AppendOutcome,
    PlacedApart,
    RunOutcome,
)
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
        self._group: list[tuple[Envelope[Any], AppendBatch]] = [(it, it.message) for it in group]
        self._backlog = backlog
        self._placed: Sequence[int] | None = None
        """How many messages were placed for each of `messages`; None: one."""
        self._answered = False

    @property
    def ticks(self) -> int:
        """How many ticks the messages take, placed apart or not."""
        return sum([batch.ticks for _, batch in self._group])

    def messages(self) -> Sequence[NewMessage]:
        """The messages of all batches, in order."""
        if len(self._group) == 1:
            return self._group[0][1].messages
        return [message for _, batch in self._group for message in batch.messages]

    def apart(self, parts: Sequence[Sequence[NewMessage]]) -> Sequence[NewMessage]:
        """The messages to place instead of `messages`, a part for each; outcomes are of these."""
        self._placed = tuple(map(len, parts))
        return [message for part in parts for message in part]

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
            placed = self._placed
            answers = outcomes if placed is None else _answers(outcomes, placed)
            envelope.reply_at_once(tuple(answers))
            self._answered = True

    def finish(self, outcomes: Sequence[AppendOutcome]) -> None:
        """Acknowledge every batch that was not yet, and count all bytes out of the backlog."""
        if not self._answered:
            self._reply(outcomes, _ALL)
        # Here and not in the caller's task: a caller may be cancelled while its messages wait.
        self._backlog.release(sum([batch.size_bytes for _, batch in self._group]))

    def _reply(self, outcomes: Sequence[AppendOutcome], levels: Collection[Durability]) -> None:
        start, placed = 0, self._placed
        answers = outcomes if placed is None else _answers(outcomes, placed)
        for envelope, batch in self._group:
            end = start + len(batch.messages)
            if batch.durability in levels:
                # Ignored when replied to before.
                envelope.reply(tuple(answers[start:end]))
            start = end


def _answers(outcomes: Sequence[AppendOutcome], placed: Sequence[int]) -> Sequence[RunOutcome]:
    each = iter(outcomes)
    parts = [tuple(islice(each, count)) for count in placed]
    return [part[0] if len(part) == 1 else PlacedApart(part) for part in parts]
