"""Finds the coordinators for a node that was given no address of one: by the metadata in etcd.

The leader record names who leads; those that stand by are announced there while they run.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio

from broker.addresses import split_addresses
from broker.app.leading.host_candidates import LOOK_S
from broker.app.process_errors import CannotStart
from broker.app.stores.etcd_metadata import COORDINATOR
from broker.beside import beside
from broker.coordinator.leases.leader_records import HOLDER_KEY, read_leader
from broker.coordinator.store_changes import Changes
from broker.etcd.etcd_store import EtcdMetaStore
from broker.ports.meta import MetaError, MetaStore
from broker.process_settings import Settings
from broker.remote.leader_calls import Known


class CoordinatorSearch:
    """The coordinators as the store had them at the last look."""

    def __init__(self, store: EtcdMetaStore) -> None:
        self._store = store
        self._found: tuple[str, ...] = ()
        self._told = anyio.Event()

    def known(self) -> Sequence[str]:
        """HOST:PORT of each, the leader first."""
        return self._found

    async def look(self) -> None:
        """Raises MetaError; what was found before stays then: a node can do without etcd."""
        seen = await read_leader(self._store)
        present = await self._store.present()
        announced = sorted(
            address.decode(errors="replace")
            for name, address in present.items()
            if name.startswith(COORDINATOR)
        )
        # The record stays when its process has died, and an announcement goes when etcd was away.
        first = [seen.holder.address] if seen.holder.address and not seen.ended else []
        self._found = tuple(dict.fromkeys([*first, *announced]))

    async def keep_looking(self) -> None:
        """Look when another one leads, or when who is announced changes; until it is cancelled."""
        lead = Changes.of(self._store, HOLDER_KEY, LOOK_S)
        present = Changes(self._store.present_changed, LOOK_S)
        async with beside(partial(self._hear, lead), partial(self._hear, present)):
            while True:
                await self._told.wait()
                self._told = anyio.Event()
                try:
                    await self.look()
                except MetaError:
                    continue

    async def _hear(self, changes: Changes) -> None:
        while True:
            await changes.next()
            self._told.set()


@asynccontextmanager
async def known_coordinators(settings: Settings, store: MetaStore) -> AsyncIterator[Known]:
    """Those that the settings name; else those in `store`, as they change. Raises CannotStart."""
    if settings.coordinator:
        given = tuple(split_addresses(settings.coordinator))
        yield lambda: given
        return
    assert isinstance(store, EtcdMetaStore), "refused before"
    search = CoordinatorSearch(store)
    try:
        await search.look()
    except MetaError as error:
        raise CannotStart(str(error)) from error
    async with beside(search.keep_looking):
        yield search.known
