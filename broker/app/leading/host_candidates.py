"""Coordinators on several hosts: each is announced in etcd, under a lease, while it runs.

Those that share a data folder still know by its lock files at once when one has ended. What has
become of a process elsewhere is known only when it says so: an announcement that is gone may be of
a process that was paused. Then its lease as the leader decides.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from broker.app.leading.folder_candidates import FolderCandidates
from broker.app.process_errors import CannotStart
from broker.app.stores.etcd_metadata import COORDINATOR
from broker.beside import beside
from broker.coordinator.store_changes import Changes
from broker.etcd.etcd_store import EtcdMetaStore
from broker.ports.leader_check import Candidate
from broker.ports.meta import MetaError

LOOK_S: Final = 2.0
"""Between two looks at who is announced, if etcd tells of no change."""


class HostCandidates:
    """`Candidates` of an etcd prefix; made by `announced_candidates`."""

    def __init__(self, local: FolderCandidates, folder: str, *, shares_locks: bool) -> None:
        """`shares_locks`: a leader without a name ran on this folder."""
        self._local = local
        self._folder = folder
        self._shares_locks = shares_locks
        own = local.own
        self._own = Candidate(f"{folder}/{own.name}", own.address)
        self._elsewhere: list[Candidate] = []

    @property
    def own(self) -> Candidate:
        """See Candidates."""
        return self._own

    @property
    def process(self) -> str:
        """See FolderCandidates."""
        return self._local.process

    async def has_ended(self, name: str) -> bool:
        """See Candidates."""
        if not name:
            return self._shares_locks  # it had that folder alone, and this process has its lock
        folder, _, local = name.partition("/")
        return folder == self._folder and await self._local.has_ended(local)

    async def running(self) -> Sequence[Candidate]:
        """See Candidates. Those on other hosts as etcd has told."""
        here = [Candidate(self._named(it.name), it.address) for it in await self._local.running()]
        return [*here, *self._elsewhere]

    async def look(self, store: EtcdMetaStore) -> None:
        """See who is announced. Raises MetaError."""
        found = await store.present()
        self._elsewhere = [
            Candidate(name.removeprefix(COORDINATOR), address.decode(errors="replace"))
            for name, address in found.items()
            if name.startswith(COORDINATOR) and not name.startswith(COORDINATOR + self._folder)
        ]

    async def keep_looking(self, store: EtcdMetaStore) -> None:
        """Look at each change, until it is cancelled."""
        changes = Changes(store.present_changed, LOOK_S)
        while True:
            await changes.next()
            try:
                await self.look(store)
            except MetaError:
                self._elsewhere = []  # unknown

    def _named(self, local: str) -> str:
        return f"{self._folder}/{local}"


@asynccontextmanager
async def announced_candidates(
    local: FolderCandidates, store: EtcdMetaStore, folder: str, *, shares_locks: bool
) -> AsyncIterator[HostCandidates]:
    """Be one of the coordinators of this store while the block runs. Raises CannotStart."""
    candidates = HostCandidates(local, folder, shares_locks=shares_locks)
    own = candidates.own
    async with AsyncExitStack() as stack:
        try:
            await candidates.look(store)
            announced = store.announced(COORDINATOR + own.name, own.address.encode())
            keys = await stack.enter_async_context(announced)
        except MetaError as error:
            raise CannotStart(str(error)) from error
        async with beside(keys.keep, partial(candidates.keep_looking, store)):
            yield candidates
