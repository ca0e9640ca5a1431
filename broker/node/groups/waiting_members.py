"""Members of a group that wait for messages, the one that waits longest first."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors import Envelope
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick
from broker.node.group_messages import LeasedMessages, TakeMessages

TAKE_S = 20.0
"""A member that waits is answered after so long without messages, so that it asks again."""

NOTHING = LeasedMessages(0, TickSpan(TimeTick(0), TimeTick(0)), 0, ())


@dataclass(slots=True)
class Taker:
    """One request of a member."""

    envelope: Envelope[Any]
    take: TakeMessages
    since_s: float


class WaitingMembers:
    """Each member waits once. `is_member`: whether a member has not left meanwhile."""

    def __init__(self, is_member: Callable[[int], bool]) -> None:
        self._is_member = is_member
        self._takers: list[Taker] = []

    def __len__(self) -> int:
        return len(self._takers)

    @property
    def numbers(self) -> list[int]:
        return [it.take.member for it in self._takers]

    @property
    def bytes_max(self) -> int:
        """The most that one of them takes."""
        return max([it.take.bytes_max for it in self._takers], default=1)

    def add(self, envelope: Envelope[Any], take: TakeMessages, now_s: float) -> None:
        """The member waits; an earlier request of it is answered."""
        for earlier in [it for it in self._takers if it.take.member == take.member]:
            self._takers.remove(earlier)
            earlier.envelope.reply(NOTHING)
        self._takers.append(Taker(envelope, take, now_s))

    def answer_old(self, now_s: float) -> None:
        """Answer those that have waited for long, and forget those that have left."""
        left: list[Taker] = []
        for it in self._takers:
            if self._waits(it) and now_s - it.since_s < TAKE_S:
                left.append(it)
            else:
                it.envelope.reply(NOTHING)
        self._takers = left

    def pop(self) -> Taker | None:
        """Take out who waits longest."""
        while self._takers:
            taker = self._takers.pop(0)
            if self._waits(taker):
                return taker
        return None

    def pop_member(self, member: int) -> Taker | None:
        """Take out this member; None if it does not wait any more."""
        for at, taker in enumerate(self._takers):
            if taker.take.member == member:
                del self._takers[at]
                return taker if self._waits(taker) else None
        return None

    def refuse(self, refusal: Refusal) -> None:
        """Answer all of them."""
        for taker in self._takers:
            taker.envelope.reply(refusal)
        self._takers.clear()

    def next_s(self) -> float | None:
        """When the first one has waited for long; None: nobody waits."""
        return min([it.since_s + TAKE_S for it in self._takers], default=None)

    def _waits(self, taker: Taker) -> bool:
        return taker.envelope.wanted() and self._is_member(taker.take.member)
