"""What was purged of a vchannel: its messages up to a tick, while its collection lives on."""

from dataclasses import dataclass, replace

from broker.model.ids import MessageId, TimeTick


@dataclass(frozen=True, slots=True)
class Purge:
    """Nobody is given a message of `vchannel` with a tick <= `upto` any more.

    `next_id`: the first id of the log behind that tick. `whole_id`: no transaction that ends behind
    the tick has a record below; what lies below it may be given back. `tick`: of the record of the
    purge.
    """

    vchannel: str
    upto: TimeTick
    next_id: MessageId
    whole_id: MessageId
    tick: TimeTick = TimeTick(0)
    newest: TimeTick | None = None
    """Nothing that it removes has a larger tick; None: not known, as of older releases."""

    @property
    def removes_upto(self) -> TimeTick:
        """Who has read up to this tick misses nothing."""
        return self.upto if self.newest is None else min(self.upto, self.newest)

    def removing(self, newest: TimeTick | None, earlier: "Purge | None") -> "Purge":
        """With `newest` of what it removes and an `earlier` one did not; 0: nothing."""
        if newest is None:
            return self
        before = TimeTick(0) if earlier is None else earlier.removes_upto
        return replace(self, newest=max(newest, before))
