"""The shared side of the CutLock, for one entry: acquired before its first append."""

from actors import Tree
from broker.coordinator.cuts.cut_lock import HELD_BACK_S
from broker.coordinator.cuts.messages import AcquireShared, ReleaseShared

ACQUIRE_S = 2 * HELD_BACK_S
"""Well beyond what a cut may take, so that a timeout means that the lock does not answer."""


class SharedCutLock:
    """One entry of `party`. `held`: it may have the lock, and has not released it since."""

    def __init__(self, tree: Tree, path: str, party: str, name: str, *, held: bool) -> None:
        self._tree = tree
        self._path = path
        self._party = party
        self._name = name
        self.held = held

    async def acquire(self, vchannels: tuple[str, ...]) -> None:
        """Wait while a cut is taken; returns at once for an entry that is inside. ActorError."""
        request = AcquireShared(self._party, self._name, vchannels)
        await self._tree.find(self._path).ask(request, deadline_s=ACQUIRE_S)
        self.held = True

    def release(self) -> None:
        """A cut taken from now on has all of the entry's appends, or none. ActorError."""
        self._tree.find(self._path).tell(ReleaseShared(self._party, self._name))
        self.held = False
