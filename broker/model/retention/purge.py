"""What was purged of a vchannel: its messages up to a tick, while its collection lives on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from broker.model.ids import MessageId, TimeTick
from broker.model.retention.holders import Passed

PASSED_MAX = 16
"""Named for each vchannel: those that were passed last."""
PASSED_KEPT_MS = 3 * 24 * 3600 * 1000
"""So long somebody is named after being passed."""


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
    passed: tuple[Passed, ...] = ()
    """Who needed what it, or one before it, removes; those that were passed last come last."""

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

    def passing(self, lost: Sequence[Passed], earlier: "Purge | None", now_ms: int) -> "Purge":
        """With who loses messages by it, behind those that an `earlier` one names."""
        named = {(it.kind, it.name): it for it in (() if earlier is None else earlier.passed)}
        for it in lost:
            named.pop((it.kind, it.name), None)  # anew, behind the others
            named[it.kind, it.name] = it
        return replace(self, passed=recently(named.values(), now_ms)[-PASSED_MAX:])


def recently(passed: Iterable[Passed], now_ms: int) -> tuple[Passed, ...]:
    """Those that are still named at this time."""
    return tuple([it for it in passed if now_ms - it.passed_ms < PASSED_KEPT_MS])
