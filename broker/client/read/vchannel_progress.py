"""How far a reader has come on one vchannel, and where a new stream must start.

Pure. A reader sees every message once, however often its streams break. A new stream starts at the
last confirmed id of the last complete message or transaction, asks for larger ticks only, and
messages that it repeats are recognised here.

There are two positions, because the messages of a transaction share the tick of its commit. While
a transaction is half delivered its tick is not settled, so a new stream must deliver it again from
its begin, and the part that the reader has is dropped by (tick, id).
"""

from broker.model.ids import MessageId, TimeTick
from broker.model.position import (
    DeliverFilter,
    DeliverPolicy,
    FromAll,
    StartFrom,
    TimeTickGt,
    TimeTickGte,
)


class VChannelProgress:
    """Of one reader. `closed_tick`: no message with a tick up to it is still to come."""

    __slots__ = (
        "_floor_tick",
        "_last_confirmed_id",
        "_policy",
        "_seen_id",
        "_seen_tick",
        "_settled_tick",
        "_takes_what_is_left",
        "closed_tick",
        "done_id",
    )

    def __init__(
        self,
        policy: DeliverPolicy,
        floor_tick: TimeTick = TimeTick(0),
        seen_id: MessageId = MessageId(0),
    ) -> None:
        """`floor_tick`: the smallest tick wanted; 0 for any. `seen_id`: of that tick only messages
        with larger ids are, because a transaction was processed up to there."""
        self._policy = policy
        self._takes_what_is_left = isinstance(policy, FromAll) and not floor_tick
        """It wants all, and was given no message yet: it does not miss what is purged by now."""
        self._floor_tick = floor_tick
        self._settled_tick = TimeTick(0)
        self._last_confirmed_id = MessageId(0)
        self._seen_tick = floor_tick if seen_id else TimeTick(0)
        self._seen_id = seen_id
        self.closed_tick = TimeTick(0)
        self.done_id = MessageId(policy.id - 1 if isinstance(policy, StartFrom) else 0)
        """Every message with an id up to this one was delivered, or is not for this reader."""

    def restart(self) -> None:
        """Resume from the first message there is, with the ticks that are still missing.

        For the case that retention removed the id to resume from, but only messages that were
        delivered before.
        """
        self._policy = FromAll()
        self._floor_tick = TimeTick(self._settled_tick + 1)
        self._settled_tick = TimeTick(0)

    def begin_anew(self) -> bool:
        """Resume at the oldest message there is, without what was seen; False if that may hide one.

        For the case that the server refuses the place to resume from as one inside a purge: a
        reader of all that was given nothing takes whatever is left. It cannot go on for ever: the
        next stream resumes anywhere else only once it has seen more than any before.
        """
        if not self._takes_what_is_left:
            return False
        self._settled_tick = self._floor_tick = TimeTick(0)
        return True

    def resume(self) -> tuple[DeliverPolicy, DeliverFilter | None]:
        """The policy and the tick filter to open the next stream with."""
        if self._settled_tick:
            return StartFrom(self._last_confirmed_id), TimeTickGt(self._settled_tick)
        if self._floor_tick:
            return self._policy, TimeTickGte(self._floor_tick)
        return self._policy, None

    def admit(
        self,
        id: MessageId,
        tick: TimeTick,
        last_confirmed_id: MessageId,
        *,
        whole: bool,
        stays: bool = False,
    ) -> bool:
        """Whether a message other than a time tick is new to the reader; records it.

        Call it for each message in the order of the stream, with the message's last confirmed id.
        `whole` is False for the messages of a transaction before its commit. `stays`: a definition,
        which no purge removes.
        """
        if tick < self._seen_tick or (tick == self._seen_tick and id <= self._seen_id):
            return False
        self._seen_tick = tick
        self._seen_id = id
        self._takes_what_is_left = self._takes_what_is_left and stays
        if whole:
            self._settled_tick = tick
            self._last_confirmed_id = last_confirmed_id
            # A message that confirms itself completes all ids up to its own. Otherwise a
            # transaction is open, whose messages may lie from the last confirmed id on.
            done_id = id if id == last_confirmed_id else last_confirmed_id - 1
            self.done_id = MessageId(max(self.done_id, done_id))
        return True

    def close(self, tick: TimeTick, last_confirmed_id: MessageId) -> bool:
        """Record a time tick; False when it is not larger than the last one."""
        if tick <= self.closed_tick:
            return False
        self.closed_tick = tick
        self.done_id = MessageId(max(self.done_id, last_confirmed_id - 1))
        # A tick also settles ids of other vchannels, so that a new stream need not scan them again.
        if tick > self._settled_tick:
            self._settled_tick = tick
            self._last_confirmed_id = last_confirmed_id
        if tick > self._seen_tick:
            self._seen_tick, self._seen_id = tick, MessageId(0)
        return True
