"""Which member owns which slot of a vchannel: an ordered group delivers to owners only.

A slot goes to another member in two steps. First that is planned: from then on nothing more of the
slot is leased. It moves once its owner has nothing outstanding of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final
from zlib import crc32

from broker.core.groups.balanced_shares import balanced
from broker.core.groups.key_lanes import SLOTS, WHOLE, slot_of
from broker.model.groups.consumer_group import Ownership

NOBODY: Final = 0
CLAIM_S: Final = 1.0
"""So long members have to agree on who takes a vchannel that nobody owns; then one is chosen."""


class SlotOwners(ABC):
    """`changes` grows with every change of members or of a plan."""

    def __init__(self, slots: int) -> None:
        self.changes = 0
        self._slots = slots
        self._owners = [NOBODY] * slots
        self._planned = [NOBODY] * slots
        self._outstanding = [0] * slots
        self._identities: dict[int, str] = {}
        """Of each member, by number."""

    def joined(self, member: int, identity: str) -> None:
        """A member more. Its `identity` is the same on all vchannels."""
        self._identities[member] = identity
        self._replan()

    def left(self, member: int) -> None:
        """A member less: what it owned goes to others."""
        if self._identities.pop(member, None) is not None:
            self._replan()

    def give(self, member: int, identity: str) -> None:  # noqa: B027 - most kinds do nothing
        """The member asks for a plan; only of a vchannel, see `VChannelOwner`."""

    def owner(self, lane: int) -> int:
        """Who gets the next messages of a lane; NOBODY while its slot moves."""
        slot = self._slot(lane)
        return self._planned[slot] if self._is_settled(slot) else NOBODY

    def took(self, lanes: Iterable[int], count: int) -> None:
        """So much more is outstanding of the slots of these lanes, or less."""
        for lane in lanes:
            self._outstanding[self._slot(lane)] += count

    def owned(self, member: int) -> int:
        """How many slots the member owns now, without those that are about to move."""
        return sum(
            [self._is_settled(it) and self._owners[it] == member for it in range(self._slots)]
        )

    def ownership(self) -> Ownership:
        """Members by identity, in the order in which they joined, and who is to own the first slot.

        For a vchannel that is its owner.
        """
        owner = self._identities.get(self._planned[WHOLE], "")
        return Ownership(tuple(self._identities.values()), owner, self.changes)

    def look(self, now_s: float) -> float | None:  # noqa: B027 - most kinds do nothing
        """Do what is due; when something is due again, None: never."""

    @abstractmethod
    def _replan(self) -> None:
        """Members have changed."""

    @abstractmethod
    def _slot(self, lane: int) -> int:
        """The slot that a lane is in."""

    def _is_settled(self, slot: int) -> bool:
        """Whether the slot is where it is to be: it moves as soon as nothing is outstanding."""
        if not self._outstanding[slot]:
            self._owners[slot] = self._planned[slot]
        return self._owners[slot] == self._planned[slot]

    def _living(self, slot: int) -> int | None:
        """Who is to own the slot, among the members that there are."""
        for member in (self._planned[slot], self._owners[slot]):
            if member in self._identities:
                return member
        return None


class KeyOwners(SlotOwners):
    """The slots of a group by key, balanced among the members of the vchannel."""

    def __init__(self) -> None:
        super().__init__(SLOTS)

    def _replan(self) -> None:
        self.changes += 1
        plan = balanced({it: self._living(it) for it in range(SLOTS)}, self._identities)
        self._planned = [plan.get(it, NOBODY) for it in range(SLOTS)]

    def _slot(self, lane: int) -> int:
        return slot_of(lane)


class VChannelOwner(SlotOwners):
    """The one slot of a group by vchannel. Its members agree on who owns which vchannel.

    They do so by one function of what they are told: see `broker/client/groups/vchannel_shares.py`.
    The only member owns at once. After the death of an owner the first claim counts.
    """

    def __init__(self, vchannel: str) -> None:
        super().__init__(1)
        self._vchannel = vchannel
        self._claims_until_s: float | None = None

    def give(self, member: int, identity: str) -> None:
        """Have the vchannel go to the member of this identity: asked by its owner, or any if none.

        Of others it comes too late: somebody else has it by now.
        """
        planned = self._planned[WHOLE]
        if planned not in (NOBODY, member):
            return
        # Of an identity that has come back the newest: the earlier one is about to leave.
        to = max([it for it, name in self._identities.items() if name == identity], default=NOBODY)
        if to not in (NOBODY, planned):
            self._plan(to)

    def look(self, now_s: float) -> float | None:
        if self._planned[WHOLE] != NOBODY or not self._identities:
            self._claims_until_s = None
        elif self._claims_until_s is None:
            self._claims_until_s = now_s + CLAIM_S
        elif now_s >= self._claims_until_s:
            chosen = min(self._identities.items(), key=lambda it: (self._weight(it[1]), it))
            self._plan(chosen[0])
            self._claims_until_s = None
        return self._claims_until_s

    def _replan(self) -> None:
        living = self._living(WHOLE)
        if living is None and len(self._identities) == 1:
            living = next(iter(self._identities))
        self._plan(NOBODY if living is None else living)

    def _plan(self, member: int) -> None:
        self.changes += 1
        self._planned[WHOLE] = member

    def _weight(self, identity: str) -> int:
        return crc32(f"{identity} {self._vchannel}".encode())

    def _slot(self, lane: int) -> int:
        return WHOLE
