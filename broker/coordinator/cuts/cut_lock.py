"""Keeps cuts from splitting broadcasts and batch commits.

A cut takes the lock exclusively (a hold), a broadcast or a batch commit shares it (an entry). New
entries that conflict with a hold wait until the cut is taken; the hold waits until those inside
have finished. The lock knows nothing of ticks: the holder takes the cut, then releases the hold and
learns whether it lasted. Nothing is stored: after a restart no hold is granted until every party
has said which of its entries are inside.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from actors import Actor, Context, Envelope, Timer
from broker.coordinator.cuts.messages import (
    AcquireShared,
    CutLockMessage,
    Held,
    ReleaseHold,
    ReleaseShared,
    RestoreShared,
    SweepHolds,
    TakeHold,
)
from broker.core.cluster.cut_lock_rules import CutLockRules, SharedHolder
from broker.model.failure import Refused, StreamingCode

WAIT_S = 3.0
"""How long a hold waits for entries inside. A node that died is replaced within this time."""
LEASE_S = 2.0
"""How long a granted hold lasts: the time for taking the cut."""
HELD_BACK_S = WAIT_S + LEASE_S
"""The longest that an entry is held back."""
HOLDS_MAX = 256
FIRST_ID_BITS = 62
"""Ids have 63 bits and start at a random one, so that no two incarnations of the lock, in any
process, give out the same id: the holder of a lost hold must not release a later one."""

Caller = Envelope[CutLockMessage]


class CutLock(Actor[CutLockMessage]):
    """See the module. `parties`: those that have to report before the first hold is granted."""

    _context: Context[CutLockMessage]

    def __init__(self, parties: Sequence[str]) -> None:
        self._rules = CutLockRules(parties, WAIT_S, LEASE_S)
        self._acquiring: dict[SharedHolder, list[Caller]] = {}
        self._taking: dict[int, Caller] = {}
        self._timer: Timer | None = None
        self._held = self._in_vain = 0

    async def started(self, context: Context[CutLockMessage]) -> None:
        self._context = context
        self._rules.start_ids_after(context.random.getrandbits(FIRST_ID_BITS))

    async def receive(self, batch: Sequence[Caller]) -> None:
        for envelope in batch:
            self._take(envelope)
        self._advance()

    def statistics(self) -> Mapping[str, int | float | str]:
        """Entries and holds now; cuts since the start, and holds that timed out (`timed_out`)."""
        rules = self._rules
        return {
            "under_way": rules.inside,
            "held_back": rules.waiting,
            "holds": rules.holds,
            "cuts": self._held,
            "timed_out": self._in_vain,
        }

    def _take(self, envelope: Caller) -> None:
        rules = self._rules
        match envelope.message:
            case RestoreShared(party, entries):
                rules.register_party(party, entries)
                self._fail_acquiring(party)
                envelope.reply(None)
            case AcquireShared(party, name, vchannels):
                entry = SharedHolder(party, name)
                rules.enter(entry, vchannels)
                # A list: a task that restarted asks again while its first request still waits.
                self._acquiring.setdefault(entry, []).append(envelope)
            case ReleaseShared(party, name):
                rules.leave(SharedHolder(party, name))
            case TakeHold() as request:
                self._hold(request, envelope)
            case ReleaseHold(id_):
                envelope.reply(rules.release(id_))
            case SweepHolds():
                self._timer = None
            case message:
                assert_never(message)

    def _hold(self, request: TakeHold, envelope: Caller) -> None:
        if self._rules.holds >= HOLDS_MAX:
            cause = f"{HOLDS_MAX} cuts are being taken already; try again"
            envelope.fail(Refused(StreamingCode.INNER, cause))
            return
        now_s, exclusive = self._now_s(), request.exclusive
        self._taking[self._rules.hold(request.channels, now_s, exclusive=exclusive)] = envelope

    def _advance(self) -> None:
        """Grant and refuse what the messages of the batch, or the time, have made possible."""
        changes = self._rules.advance(self._now_s())
        for id_, waited_for in changes.timed_out.items():
            self._in_vain += 1
            # Nobody in particular: after a start some party has not said yet who is inside.
            names = ", ".join(f"{it.party} {it.name}" for it in waited_for) or "a restart to finish"
            cause = f"the cut waited {WAIT_S} s for {names}; try again"
            self._taking.pop(id_).fail(Refused(StreamingCode.INNER, cause))
        for id_ in changes.granted:
            self._grant(id_)
        # Not only those admitted now: one that is inside and asks again is answered, too.
        for entry in [it for it in self._acquiring if self._rules.is_inside(it)]:
            for caller in self._acquiring.pop(entry):
                caller.reply(None)
        self._plan()

    def _grant(self, id_: int) -> None:
        caller = self._taking.pop(id_)
        if caller.wanted():
            self._held += 1
            caller.reply(Held(id_, LEASE_S))
        else:
            # Nobody waits for this hold any more: do not block entries for its whole lease.
            self._rules.release(id_)
            self._context.self.tell(SweepHolds())  # admits those entries in another round

    def _fail_acquiring(self, party: str) -> None:
        """A party restarted: its waiting requests are of tasks that are gone, or that ask again."""
        for entry in [it for it in self._acquiring if it.party == party]:
            for caller in self._acquiring.pop(entry):
                caller.fail(Refused(StreamingCode.INNER, f"{party} have restarted; try again"))

    def _plan(self) -> None:
        next_s = self._rules.next_s()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if next_s is not None:
            self._timer = self._context.after(max(0.0, next_s - self._now_s()), SweepHolds())

    def _now_s(self) -> float:
        return self._context.clock.monotonic_s()
