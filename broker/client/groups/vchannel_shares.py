"""Members of a group by vchannel agree on who owns which vchannel, each by itself.

Every vchannel tells each of its members who is there, and who is to own it. Of that each member
makes the same plan, `balanced`, and does its own part: it gives away what it owns too much, to the
one that the plan names, and claims what nobody owns and the plan gives to it. So no two members
decide about one vchannel, unless they were told different things; then the Group of the vchannel
takes the first, and all are told anew. It alone makes sure that there is one owner at a time.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from broker.core.groups.balanced_shares import balanced

Give = Callable[[str], None]
"""Have the vchannel go to the member of this identity."""
_NOWHERE: Final[dict[str, str]] = {}


@dataclass(slots=True)
class _Told:
    """What a vchannel told last. `give` None: its stream is lost. `asked`: for whom, since then."""

    give: Give | None
    members: Sequence[str]
    owner: str
    asked: str = ""


class VChannelShares:
    """For one member of a group, on all vchannels of its target."""

    def __init__(self, identity: str) -> None:
        """`identity`: of no other member."""
        self.identity = identity
        self._told: dict[str, _Told] = {}
        self._expected: frozenset[str] = frozenset()
        self._news = False
        self._gone: set[str] = set()
        """Members that have left a vchannel, and so are about to leave the others."""

    def expect(self, vchannels: Iterable[str]) -> None:
        """These are all there are. Until each was heard of, nothing is given or claimed.

        Of some only it would take a fair share for too much.
        """
        self._expected = frozenset(vchannels)

    def told(self, vchannel: str, give: Give, members: Sequence[str], owner: str) -> bool:
        """Take up what a vchannel says of itself; True if `decide` is to be called for it.

        Each vchannel tells of a member that comes or goes: one plan does for all of them.
        """
        before = self._told.get(vchannel)
        self._gone -= set(members)
        if before is not None:
            self._gone |= {*before.members} - {*members}
        self._told[vchannel] = _Told(give, members, owner)
        first, self._news = not self._news, True
        return first

    def decide(self) -> None:
        """Give and claim what follows from all that was told."""
        self._news = False
        plan = self._plan()
        for name, known in self._told.items():
            to = plan.get(name, "")
            decides = known.owner in ("", self.identity)
            mine = to == self.identity or known.owner == self.identity
            if not (decides and mine) or to in (known.owner, known.asked):
                continue
            # One that is not there yet gets it when it is.
            if known.give is not None and to in known.members:
                known.asked = to
                known.give(to)

    def lost(self, vchannel: str, give: Give) -> None:
        """The stream has ended. Until the next one tells otherwise, all is as it was."""
        known = self._told.get(vchannel)
        if known is not None and known.give == give:
            # Whoever comes back to its next life later has not left.
            known.give, known.members = None, ()

    def owned(self) -> list[str]:
        """The vchannels that go to this member, as far as it knows."""
        return sorted([it for it, known in self._told.items() if known.owner == self.identity])

    def _plan(self) -> dict[str, str]:
        living = {it for known in self._told.values() for it in known.members} - self._gone
        if self.identity not in living or not self._expected <= self._told.keys():
            return _NOWHERE
        return balanced({it: known.owner or None for it, known in self._told.items()}, living)
