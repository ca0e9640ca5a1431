"""The cut lock: appends that span several vchannels share it, taking a cut holds it exclusively.

A shared holder is a broadcast, or anything else that appends messages belonging together to several
vchannels. It enters before its first append and leaves when all of them are durable. A hold is
requested by whoever takes a cut; it is granted when no conflicting holder is inside, and while it
is granted no conflicting holder enters. A holder conflicts with a hold if they have at least two
vchannels in common: a cut cannot split what lies on a single vchannel. With an exclusive hold one
is enough: a backup reads records of the metadata and the log, and neither may change in between.

The lock is fair, so neither side starves. A holder waits only for holds requested before it. A hold
ends `wait_s` after its request if it is not granted by then, and `lease_s` after it was granted. So
no holder waits longer than `wait_s + lease_s`.

After a restart each party (a sender of holders) reports which of its holders are inside. Until all
parties have reported, no hold is granted. Without a clock: callers pass the time.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.core.naming import pchannel_of


class SharedHolder(NamedTuple):
    """Somebody who appends to several vchannels; names are unique within a party."""

    party: str
    name: str


@dataclass(frozen=True, slots=True)
class LockChanges:
    """What changed: holders that may append, holds that were granted, holds that timed out.

    `timed_out` names some of the holders that each hold waited for; none: it waited for parties
    that have not reported yet.
    """

    admitted: tuple[SharedHolder, ...]
    granted: tuple[int, ...]
    timed_out: Mapping[int, tuple[SharedHolder, ...]]


@dataclass(slots=True)
class _Hold:
    targets: frozenset[str]
    waits_for: set[SharedHolder]
    until_s: float
    vchannels_min: int
    granted: bool = False

    def is_concerned_by(self, vchannels: Iterable[str]) -> bool:
        """Whether enough of them are among the targets, directly or through their pchannel."""
        targets = self.targets
        common = sum([it in targets or pchannel_of(it) in targets for it in vchannels])
        return common >= self.vchannels_min


@dataclass(slots=True)
class _Waiting:
    vchannels: tuple[str, ...]
    waits_for: set[int] = field(default_factory=set)


SHOWN_MAX = 5
"""How many holders are named for a hold that timed out."""


class CutLockRules:
    """The state of the lock. Call `advance` after every change, and at the time `next_s`."""

    def __init__(self, parties: Collection[str], wait_s: float, lease_s: float) -> None:
        self._unknown = set(parties)
        self._wait_s, self._lease_s = wait_s, lease_s
        self._inside: dict[SharedHolder, tuple[str, ...]] = {}
        self._waiting: dict[SharedHolder, _Waiting] = {}
        self._holds: dict[int, _Hold] = {}
        self._last_id = 0

    def start_ids_after(self, id_: int) -> None:
        """Number holds from above this id. A client of an earlier incarnation of the lock may ask
        for its hold here, and must not get one that belongs to somebody else."""
        self._last_id = id_

    @property
    def inside(self) -> int:
        """How many holders are inside."""
        return len(self._inside)

    @property
    def waiting(self) -> int:
        """How many holders wait to enter."""
        return len(self._waiting)

    @property
    def holds(self) -> int:
        """How many holds there are, granted or waiting."""
        return len(self._holds)

    def register_party(self, party: str, entrants: Mapping[str, tuple[str, ...]]) -> None:
        """A party has started and reports which of its holders may have appended something.

        If the party had reported before, only holders that are inside stay: one that was waiting
        has appended nothing and will enter again.
        """
        if party in self._unknown:
            self._unknown.discard(party)
            for name, vchannels in entrants.items():
                self._get_in(SharedHolder(party, name), vchannels)
            return
        for entrant in [*self._inside, *self._waiting]:
            if entrant.party == party and (
                entrant in self._waiting or entrant.name not in entrants
            ):
                self.leave(entrant)

    def enter(self, entrant: SharedHolder, vchannels: tuple[str, ...]) -> None:
        """It is about to append. No change if it is inside or waits already."""
        if entrant in self._inside or entrant in self._waiting:
            return
        waiting = self._waiting[entrant] = _Waiting(vchannels)
        for id_, hold in self._holds.items():
            if hold.is_concerned_by(vchannels):
                waiting.waits_for.add(id_)

    def leave(self, entrant: SharedHolder) -> None:
        """All its appends are durable, or it stops trying for now."""
        self._inside.pop(entrant, None)
        self._waiting.pop(entrant, None)
        for hold in self._holds.values():
            hold.waits_for.discard(entrant)

    def hold(self, targets: Iterable[str], now_s: float, *, exclusive: bool = False) -> int:
        """Request a hold for a cut of these channels; returns its id.

        `exclusive`: holders with a single vchannel among them conflict, too.
        """
        self._last_id += 1
        vchannels_min = 1 if exclusive else 2
        hold = _Hold(frozenset(targets), set(), now_s + self._wait_s, vchannels_min)
        for entrant, vchannels in self._inside.items():
            if hold.is_concerned_by(vchannels):
                hold.waits_for.add(entrant)
        # Waiting holders count, too: they were here first, and a stream of holds must not starve
        # them.
        for entrant, waiting in self._waiting.items():
            if hold.is_concerned_by(waiting.vchannels):
                hold.waits_for.add(entrant)
        self._holds[self._last_id] = hold
        return self._last_id

    def release(self, id_: int) -> bool:
        """End a hold; whether it was still granted, so that no conflicting holder has entered."""
        hold = self._holds.get(id_)
        if hold is None:
            return False
        self._end(id_)
        return hold.granted

    def is_inside(self, entrant: SharedHolder) -> bool:
        """Whether the holder may append."""
        return entrant in self._inside

    def next_s(self) -> float | None:
        """When the next hold times out or its lease ends; None without holds."""
        return min((hold.until_s for hold in self._holds.values()), default=None)

    def advance(self, now_s: float) -> LockChanges:
        """End holds that are over, admit holders, grant holds; reports each change once."""
        # Ended holds come first, so that the holders that waited only for them are admitted in this
        # call.
        timed_out: dict[int, tuple[SharedHolder, ...]] = {}
        for id_, hold in list(self._holds.items()):
            if hold.until_s <= now_s:
                if not hold.granted:
                    timed_out[id_] = tuple(sorted(hold.waits_for)[:SHOWN_MAX])
                self._end(id_)
        admitted = [it for it, waiting in self._waiting.items() if not waiting.waits_for]
        for entrant in admitted:
            self._inside[entrant] = self._waiting.pop(entrant).vchannels
        granted = [id_ for id_, hold in self._holds.items() if self._may_grant(hold)]
        for id_ in granted:
            self._holds[id_].granted = True
            self._holds[id_].until_s = now_s + self._lease_s
        return LockChanges(tuple(admitted), tuple(granted), timed_out)

    def _may_grant(self, hold: _Hold) -> bool:
        # A party that has not reported may have holders inside.
        return not (hold.granted or hold.waits_for or self._unknown)

    def _get_in(self, entrant: SharedHolder, vchannels: tuple[str, ...]) -> None:
        """Admit it at once: no hold is granted before all parties have reported."""
        self._waiting.pop(entrant, None)
        self._inside[entrant] = vchannels
        for hold in self._holds.values():
            if hold.is_concerned_by(vchannels):
                hold.waits_for.add(entrant)

    def _end(self, id_: int) -> None:
        del self._holds[id_]
        for waiting in self._waiting.values():
            waiting.waits_for.discard(id_)
