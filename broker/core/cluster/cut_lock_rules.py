"""Lets those who append on several channels through, or holds them back while a cut is taken.

An entrant is one broadcast, or whatever else appends on several vchannels what belongs together;
it enters before its first append and leaves when it has landed everywhere. A hold is a cut being
taken: it is granted once nobody who concerns it is under way, and as long as it lasts nobody who
concerns it gets in. An entrant concerns a hold that it has two or more vchannels in common with:
of one alone there is nothing to split.

Whoever comes first goes first, so neither side starves the other: an entrant waits only for holds
that were there before it, and a hold ends by itself `wait_s` after it came, or `lease_s` after it
was granted. So nobody is held back for longer than both together.

Those under way at a start are told by the parties that send entrants; until each of them has, no
hold is granted. Pure: owns no clock. Next: broker/coordinator/cuts/cut_lock.py
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.core.naming import pchannel_of


class SharedHolder(NamedTuple):
    """Who appends; names are unique within a party."""

    party: str
    name: str


@dataclass(frozen=True, slots=True)
class LockChanges:
    """What became possible: who may append, which holds are granted, which ones waited in vain.

    With each of the last come some that it waited for; none: for parties that have said nothing.
    """

    admitted: tuple[SharedHolder, ...]
    granted: tuple[int, ...]
    timed_out: Mapping[int, tuple[SharedHolder, ...]]


@dataclass(slots=True)
class _Hold:
    targets: frozenset[str]
    waits_for: set[SharedHolder]
    until_s: float
    granted: bool = False

    def is_concerned_by(self, vchannels: Iterable[str]) -> bool:
        """Whether two of them are among the targets, by themselves or by their pchannel."""
        targets = self.targets
        return sum([it in targets or pchannel_of(it) in targets for it in vchannels]) > 1


@dataclass(slots=True)
class _Waiting:
    vchannels: tuple[str, ...]
    waits_for: set[int] = field(default_factory=set)


SHOWN_MAX = 5
"""Entrants that are named to a hold that waited in vain."""


class CutLockRules:
    """See the module. Ask for the `turn` after every change, and when `next_s` has come."""

    def __init__(self, parties: Collection[str], wait_s: float, lease_s: float) -> None:
        self._unknown = set(parties)
        self._wait_s, self._lease_s = wait_s, lease_s
        self._inside: dict[SharedHolder, tuple[str, ...]] = {}
        self._waiting: dict[SharedHolder, _Waiting] = {}
        self._holds: dict[int, _Hold] = {}
        self._last_id = 0

    def start_ids_after(self, id_: int) -> None:
        """Ids of holds are above this one. Who held a turnstile that is gone may ask for its hold
        here, and must not find somebody else's."""
        self._last_id = id_

    @property
    def inside(self) -> int:
        """How many are under way."""
        return len(self._inside)

    @property
    def waiting(self) -> int:
        """How many are held back."""
        return len(self._waiting)

    @property
    def holds(self) -> int:
        """Granted or not."""
        return len(self._holds)

    def register_party(self, party: str, entrants: Mapping[str, tuple[str, ...]]) -> None:
        """A party has started: these of its entrants may have appended something.

        Of a party that is known already, those alone that had got in: who was waiting has
        appended nothing, and will enter again.
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
        """It is about to append. Who is under way already goes on; who waits stays in its place."""
        if entrant in self._inside or entrant in self._waiting:
            return
        waiting = self._waiting[entrant] = _Waiting(vchannels)
        for id_, hold in self._holds.items():
            if hold.is_concerned_by(vchannels):
                waiting.waits_for.add(id_)

    def leave(self, entrant: SharedHolder) -> None:
        """It has landed everywhere, or gives up for now."""
        self._inside.pop(entrant, None)
        self._waiting.pop(entrant, None)
        for hold in self._holds.values():
            hold.waits_for.discard(entrant)

    def hold(self, targets: Iterable[str], now_s: float) -> int:
        """A cut of these is to be taken; the id of the hold."""
        self._last_id += 1
        hold = _Hold(frozenset(targets), set(), now_s + self._wait_s)
        for entrant, vchannels in self._inside.items():
            if hold.is_concerned_by(vchannels):
                hold.waits_for.add(entrant)
        for entrant, waiting in self._waiting.items():
            if hold.is_concerned_by(waiting.vchannels):
                hold.waits_for.add(entrant)
        self._holds[self._last_id] = hold
        return self._last_id

    def release(self, id_: int) -> bool:
        """The cut was taken, or given up; whether nobody concerned got in since it was granted."""
        hold = self._holds.get(id_)
        if hold is None:
            return False
        self._end(id_)
        return hold.granted

    def is_inside(self, entrant: SharedHolder) -> bool:
        """Whether it may append."""
        return entrant in self._inside

    def next_s(self) -> float | None:
        """When the next hold ends by itself; None without any."""
        return min((hold.until_s for hold in self._holds.values()), default=None)

    def turn(self, now_s: float) -> LockChanges:
        """End what is over, and let in and grant what can be; each is told once."""
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
        return not (hold.granted or hold.waits_for or self._unknown)

    def _get_in(self, entrant: SharedHolder, vchannels: tuple[str, ...]) -> None:
        """Without waiting: no hold can be granted yet."""
        self._waiting.pop(entrant, None)
        self._inside[entrant] = vchannels
        for hold in self._holds.values():
            if hold.is_concerned_by(vchannels):
                hold.waits_for.add(entrant)

    def _end(self, id_: int) -> None:
        del self._holds[id_]
        for waiting in self._waiting.values():
            waiting.waits_for.discard(id_)
