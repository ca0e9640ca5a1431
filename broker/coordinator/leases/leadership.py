"""Leader fencing: only the newest coordinator can write the metadata.

Each coordinator counts up the leader record when it starts, and each of its writes expects the
revision it wrote. So an older one that still runs (it was suspended, or the lock file did not keep
it out) changes nothing, at whichever step it is.
"""

import math
from collections.abc import Mapping, Sequence

import anyio

from broker.coordinator.counters import count_up
from broker.coordinator.leases.leader_records import (
    LEADER_KEY,
    RENEWED_KEY,
    LeaderSeen,
    ended_puts,
    leader_puts,
)
from broker.coordinator.records import encode_number
from broker.ports.leader_check import Candidate
from broker.ports.meta import (
    Conflict,
    LastingFailure,
    MetaEntry,
    MetaError,
    MetaStore,
    UnusableStore,
    get_many,
)

CHECK_S = 1.0
"""The longest time for which a coordinator without writes does not notice a newer one."""


END_S = 1.0
"""The longest time for the last record of a leader: its process is stopping."""


class Deposed(LastingFailure):
    """A newer coordinator leads: this write had no effect, and no later one will have."""


class LedStore:
    """A MetaStore (`broker/ports/meta.py`) that only the leader can write; made by `lead`."""

    def __init__(self, store: MetaStore, term: int, revision: int) -> None:
        self._store = store
        self._revision = revision
        self._deposed = anyio.Event()
        self._led_s = -math.inf
        """When a write or a check last showed that this coordinator leads."""
        self.term = term
        self.ended = False
        """Whether `end` has told."""

    @property
    def revision(self) -> int:
        """Of the record that this leader wrote: nobody has followed it while the store has that."""
        return self._revision

    @property
    def inner(self) -> MetaStore:
        """The store itself."""
        return self._store

    @property
    def deposed(self) -> bool:
        """Whether a newer coordinator was noticed."""
        return self._deposed.is_set()

    async def until_deposed(self) -> None:
        """Wait until a newer coordinator is noticed: with the next write, or within CHECK_S.

        Raises UnusableStore: nobody will be noticed through such a store.
        """
        while not self.deposed:
            # A write that took effect says as much as a check, and an idle coordinator writes
            # about as often: the oracle's bound.
            left_s = self._led_s + CHECK_S - anyio.current_time()
            if left_s <= 0:
                left_s = CHECK_S
                await self._check()
            with anyio.move_on_after(left_s):
                await self._deposed.wait()

    async def leads(self) -> bool:
        """See Lead (`broker/ports/leader_check.py`)."""
        entry = await self._store.get(LEADER_KEY)
        return entry is not None and entry.revision == self._revision

    async def get(self, key: str) -> MetaEntry | None:
        """See MetaStore."""
        return await self._store.get(key)

    async def get_many(self, keys: Sequence[str]) -> Sequence[MetaEntry | None]:
        """See ReadsTogether (`broker/ports/meta.py`)."""
        return await get_many(self._store, keys)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        """See MetaStore."""
        return await self._store.list(prefix, limit=limit, after=after)

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        """See MetaStore. Also raises Deposed."""
        # This expectation is the fence: it fails once a newer coordinator has written the record.
        fenced = {**(expect or {}), LEADER_KEY: self._revision}
        began_s = anyio.current_time()
        try:
            revision = await self._store.write(puts, deletes=deletes, expect=fenced)
        except Conflict as conflict:
            # The store reports one conflict, the first by key: check the leader record, too.
            if conflict.key != LEADER_KEY and await self.leads():
                raise
            self._deposed.set()
            cause = f"a newer coordinator leads than the one of term {self.term}; stop this one"
            raise Deposed(cause) from conflict
        self._led_s = max(self._led_s, began_s)
        return revision

    async def end(self) -> None:
        """Tell those that stand by that this process does nothing more, so that one follows."""
        with anyio.move_on_after(END_S, shield=True):
            try:
                await self.write(ended_puts(self.term))
            except MetaError:
                return  # they wait for the lease
            self.ended = True

    async def close(self) -> None:
        """See MetaStore."""
        await self._store.close()

    async def _check(self) -> None:
        began_s = anyio.current_time()
        try:
            if await self.leads():
                self._led_s = max(self._led_s, began_s)
            else:
                self._deposed.set()
        except UnusableStore:
            raise
        except MetaError:
            pass  # without the store nobody can become the leader either


async def lead(store: MetaStore) -> LedStore:
    """Become the leader, at a term above all earlier ones. Raises MetaError.

    For a process that nobody stands by for, because it keeps all others out of the store.
    """
    counted = await count_up(store, LEADER_KEY)
    return LedStore(store, term=counted.number, revision=counted.revision)


async def lead_after(
    store: MetaStore, seen: LeaderSeen, candidate: Candidate, lease_s: float
) -> LedStore:
    """Follow this leader. Raises MetaError.

    Conflict when somebody else has led since, or the leader has renewed its lease.
    """
    term = seen.term + 1
    puts = {LEADER_KEY: encode_number(term), **leader_puts(term, candidate, lease_s)}
    # Of those that have seen the same leader end, one gets the lead; none of them if it goes on, as
    # it answers for half a lease after a renewal.
    expect = {LEADER_KEY: seen.revision, RENEWED_KEY: seen.renewed}
    revision = await store.write(puts, expect=expect)
    return LedStore(store, term, revision)
