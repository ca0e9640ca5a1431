"""How whoever appends on several vchannels goes through the CutGate, and out of it again.

Owns what this incarnation knows of it.
"""

from actors import Tree
from broker.coordinator.cuts.cut_lock import HELD_BACK_S
from broker.coordinator.cuts.messages import EnterShared, LeaveShared

GATE_S = 2 * HELD_BACK_S


class LockEntry:
    """Of one entrant. `inside`: whether it may have been let in and has not left since."""

    def __init__(self, tree: Tree, gate_path: str, party: str, name: str, *, inside: bool) -> None:
        self._tree = tree
        self._path = gate_path
        self._party = party
        self._name = name
        self.inside = inside

    async def enter(self, vchannels: tuple[str, ...]) -> None:
        """Wait while a cut is taken; who is under way is let through at once. ActorError."""
        entering = EnterShared(self._party, self._name, vchannels)
        await self._tree.find(self._path).ask(entering, deadline_s=GATE_S)
        self.inside = True

    def leave(self) -> None:
        """A cut from now on has all of what it appended, or nothing. ActorError."""
        self._tree.find(self._path).tell(LeaveShared(self._party, self._name))
        self.inside = False
