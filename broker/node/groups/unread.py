"""Where a group reads on behind its newest lease, and whether anything is there.

At the end of the log it does not read: it listens for messages of its vchannel. So an idle group
costs nothing with each closed tick, and nothing for the messages of other vchannels.
"""

from dataclasses import replace

from actors import Ref
from broker.model.ids import MessageId
from broker.model.position import ReadPosition
from broker.node.group_messages import MessagesCame
from broker.node.state.tail import Tail

PASS_S = 15.0
"""After so long it passes what came for others: its reader holds the log where it read last."""


class UnreadPart:
    """For one Group, which passes on every `MessagesCame`."""

    def __init__(self, tail: Tail, vchannel: str, group: Ref[MessagesCame]) -> None:
        self.at: ReadPosition | None = None
        """None: to be looked up."""
        self._tail = tail
        self._vchannel = vchannel
        self._group = group
        self._found_nothing = False
        self._since: MessageId | None = None
        """It listens, and heard of no message at or above this id."""
        self._since_s = 0.0

    def reached(self, at: ReadPosition, *, found: bool) -> None:
        """Everything below `at` was read; `found`: there were messages."""
        self.at, self._found_nothing = at, not found

    def came(self, from_id: MessageId) -> None:
        """There are messages, the first of them at `from_id` or above it."""
        if self._since is not None and self.at is not None and self.at.next_id >= self._since:
            self.at = _passed(self.at, from_id)
        self._since, self._found_nothing = None, False

    def waits(self, now_s: float) -> bool:
        """Whether nothing is there to be read: `MessagesCame` follows when something is."""
        at = self.at
        if at is None or at.inside:
            return False
        if self._since is None:
            if not self._found_nothing and at.next_id < self._tail.next_id:
                return False
            # From now on nothing is missed; what came before is read once more.
            self._since, self._since_s = self._tail.listen(self._vchannel, self._group), now_s
        if at.next_id < self._since:
            return False
        if not self._tail.listens(self._vchannel, self._group):
            # It was told, and has not read that yet: passing now would pass the message.
            self._since = None
            return False
        if now_s - self._since_s < PASS_S:
            return True
        self._since, self._since_s = self._tail.next_id, now_s
        self.at = _passed(at, self._since)
        return False

    def close(self) -> None:
        """Listen no more."""
        self._tail.listen_no_more(self._vchannel, self._group)


def _passed(at: ReadPosition, next_id: MessageId) -> ReadPosition:
    """The position behind what holds nothing for its reader, unless a transaction is open there."""
    if at.open_id != at.next_id or next_id <= at.next_id:
        return at
    return replace(at, next_id=next_id, open_id=next_id)
