"""Keeps cuts from splitting broadcasts: new ones wait until those under way have landed.

Owns who waits at the gate and who is behind it. It knows nothing of ticks: whoever holds the gate
takes the cut, and afterwards asks whether the hold has lasted. It remembers nothing over a restart,
and then waits for every party to say what is under way before it grants anything.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from actors import Actor, Context, Envelope, Timer
from broker.coordinator.cuts.messages import (
    CutLockMessage,
    EnterShared,
    Held,
    LeaveShared,
    ReleaseHold,
    SweepHolds,
    TakeHold,
    UnderWay,
)
from broker.core.cluster.cut_lock_rules import CutLockRules, SharedHolder
from broker.model.failure import Refused, StreamingCode

WAIT_S = 3.0
"""For what is under way. A node that died is replaced within this time."""
LEASE_S = 2.0
"""For taking the cut."""
HELD_BACK_S = WAIT_S + LEASE_S
"""No broadcast is held back for longer."""
HOLDS_MAX = 256
FIRST_ID_BITS = 62
"""An id has 63; no two lives of a gate, in whichever process, give the same ones."""

Asked = Envelope[CutLockMessage]


class CutLock(Actor[CutLockMessage]):
    """See the module. `parties`: who appends what may be split."""

    _context: Context[CutLockMessage]

    def __init__(self, parties: Sequence[str]) -> None:
        self._turnstile = CutLockRules(parties, WAIT_S, LEASE_S)
        self._entering: dict[SharedHolder, list[Asked]] = {}
        self._holding: dict[int, Asked] = {}
        self._timer: Timer | None = None
        self._held = self._in_vain = 0

    async def started(self, context: Context[CutLockMessage]) -> None:
        self._context = context
        self._turnstile.number_from(context.random.getrandbits(FIRST_ID_BITS))

    async def receive(self, batch: Sequence[Asked]) -> None:
        for envelope in batch:
            self._take(envelope)
        self._turn()

    def statistics(self) -> Mapping[str, int | float | str]:
        """Now, and cuts since the start: those it was held for, and those that waited in vain."""
        turnstile = self._turnstile
        return {
            "under_way": turnstile.inside,
            "held_back": turnstile.waiting,
            "holds": turnstile.holds,
            "cuts": self._held,
            "in_vain": self._in_vain,
        }

    def _take(self, envelope: Asked) -> None:
        turnstile = self._turnstile
        match envelope.message:
            case UnderWay(party, entrants):
                turnstile.under_way(party, entrants)
                self._forget_askers(party)
                envelope.reply(None)
            case EnterShared(party, name, vchannels):
                entrant = SharedHolder(party, name)
                turnstile.enter(entrant, vchannels)
                self._entering.setdefault(entrant, []).append(envelope)
            case LeaveShared(party, name):
                turnstile.leave(SharedHolder(party, name))
            case TakeHold(channels):
                self._hold(channels, envelope)
            case ReleaseHold(id_):
                envelope.reply(turnstile.release(id_))
            case SweepHolds():
                self._timer = None
            case message:
                assert_never(message)

    def _hold(self, channels: tuple[str, ...], envelope: Asked) -> None:
        if self._turnstile.holds >= HOLDS_MAX:
            cause = f"{HOLDS_MAX} cuts are being taken already; try again"
            envelope.fail(Refused(StreamingCode.INNER, cause))
            return
        self._holding[self._turnstile.hold(channels, self._now_s())] = envelope

    def _turn(self) -> None:
        """Whatever became possible by the messages of a batch, or by the time."""
        turn = self._turnstile.turn(self._now_s())
        for id_, waited_for in turn.in_vain.items():
            self._in_vain += 1
            names = ", ".join(f"{it.party} {it.name}" for it in waited_for) or "the start"
            cause = f"the cut waited {WAIT_S} s in vain for {names}; try again"
            self._holding.pop(id_).fail(Refused(StreamingCode.INNER, cause))
        for id_ in turn.granted:
            self._grant(id_)
        for entrant in [it for it in self._entering if self._turnstile.is_inside(it)]:
            for asked in self._entering.pop(entrant):
                asked.reply(None)
        self._plan()

    def _grant(self, id_: int) -> None:
        asked = self._holding.pop(id_)
        if asked.wanted():
            self._held += 1
            asked.reply(Held(id_, LEASE_S))
        else:
            self._turnstile.release(id_)
            self._context.self.tell(SweepHolds())

    def _forget_askers(self, party: str) -> None:
        """Those of a party that has started anew are gone; should one be there, it asks again."""
        for entrant in [it for it in self._entering if it.party == party]:
            for asked in self._entering.pop(entrant):
                asked.fail(Refused(StreamingCode.INNER, f"{party} have started anew; enter again"))

    def _plan(self) -> None:
        next_s = self._turnstile.next_s()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if next_s is not None:
            self._timer = self._context.after(max(0.0, next_s - self._now_s()), SweepHolds())

    def _now_s(self) -> float:
        return self._context.clock.monotonic_s()
