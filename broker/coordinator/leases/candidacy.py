"""Stands by until the leader has ended, or has not renewed its lease, then leads.

A leader whose process has ended is followed at once; one that is only silent, after its lease.
"""

from collections.abc import Callable
from typing import Final

import anyio
import structlog

from broker.beside import beside
from broker.coordinator.json_records import UnreadableRecord
from broker.coordinator.leases.leader_lease import LeaderLease
from broker.coordinator.leases.leader_records import (
    ENDED_KEY,
    LeaderSeen,
    ended_puts,
    read_leader,
)
from broker.coordinator.leases.leadership import END_S, LedStore, lead_after
from broker.coordinator.store_changes import Changes
from broker.ports.leader_check import Candidates
from broker.ports.meta import Conflict, MetaError, MetaStore, UnusableStore

TELL_S: Final = 5.0
"""The longest wait for a store to tell that the leader has ended."""
LOOK_S: Final = 0.05
"""Between two looks at the leader's process, which are a system call."""
READ_S: Final = 0.2
"""Between two looks at the store: for renewals, and whether the leader has ended."""

log = structlog.get_logger("tidemark")


class Candidacy:
    """One process that wants to lead. `leader`: the address of who leads now, "" if nobody does."""

    def __init__(
        self,
        store: MetaStore,
        candidates: Candidates,
        lease_s: float,
        now_s: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._store = store
        self._candidates = candidates
        self._lease_s = lease_s
        self._now_s = now_s
        self._seen: LeaderSeen | None = None
        self._since_s = 0.0
        """When the newest renewal was first seen here."""
        self._asked = False
        """Whether it has asked the store for the lead: it may have it without knowing."""
        self._reported = False
        self._told = False

    @property
    def leader(self) -> str:
        """HOST:PORT of the leader, as it was last read."""
        return "" if self._seen is None else self._seen.holder.address

    async def attempt(self) -> tuple[LedStore, LeaderLease] | None:
        """Lead if there is no leader left; None while there is one. Raises MetaError.

        Not to be called again after it has led.
        """
        looked_s = self._now_s()
        found = await read_leader(self._store)
        if found != self._seen:
            self._seen, self._since_s = found, self._now_s()
        if not await self._is_over(found, looked_s):
            return None
        began_s = self._now_s()
        self._asked = True
        try:
            led = await lead_after(self._store, found, self._candidates.own, self._lease_s)
        except Conflict:
            return None  # another one was faster, or the leader goes on
        return led, LeaderLease(led, self._lease_s, began_s, self._now_s)

    async def until_leading(self) -> tuple[LedStore, LeaderLease]:
        """Wait for the lead, and take it; waits for a store that fails.

        Raises UnreadableRecord, and UnusableStore.
        """
        async with beside(self._hear):
            return await self._until_leading()

    async def withdraw(self) -> None:
        """End the lead that this process has taken and will not use, if it has one; bounded.

        For a stop during the take-over: the others would wait for the lease. The store is read, as
        the stop may have met the write of the lead, whose outcome is then not known here.
        """
        if not self._asked:
            return
        with anyio.move_on_after(END_S, shield=True):
            try:
                found = await read_leader(self._store)
                if self._is_own(found):
                    led = LedStore(self._store, found.term, found.revision)
                    await led.write(ended_puts(found.term))
            except MetaError:
                return  # they wait for the lease

    async def _until_leading(self) -> tuple[LedStore, LeaderLease]:
        while True:
            self._told = False
            try:
                led = await self.attempt()
            except (UnreadableRecord, UnusableStore):
                raise
            except MetaError as error:
                self._report(error)
                led = None
            else:
                self._reported = False
            if led is not None:
                return led
            await self._pause()

    async def _is_over(self, found: LeaderSeen, looked_s: float) -> bool:
        if not found.term or found.ended or await self._candidates.has_ended(found.holder.name):
            return True
        if self._is_own(found):
            return True  # the answer to that write was lost, and so nobody leads under it
        if not found.holder.name:
            return False  # it renews nothing, so its silence says nothing
        # The longer of both: processes may have been started with different settings.
        return looked_s - self._since_s >= max(self._lease_s, found.lease_s)

    def _is_own(self, found: LeaderSeen) -> bool:
        # The name is of this start of the process: no earlier or later one has it.
        return found.holder.name == self._candidates.own.name

    async def _hear(self) -> None:
        """Let the store tell that the leader has ended in order."""
        changes = Changes.of(self._store, ENDED_KEY, TELL_S)
        while True:
            await changes.next()
            self._told = True

    async def _pause(self) -> None:
        """Until the next look at the store, or until the leader's process has ended."""
        # By the clock, not by counting: on a busy machine each sleep lasts longer.
        until_s = self._now_s() + READ_S
        while (left_s := until_s - self._now_s()) > 0:
            await anyio.sleep(min(LOOK_S, left_s))
            ended = self._seen is None or await self._candidates.has_ended(self._seen.holder.name)
            if ended or self._told:
                return

    def _report(self, error: MetaError) -> None:
        if not self._reported:  # once for each outage: it may last for hours
            log.warning("standing by: the metadata cannot be read or written", error=str(error))
        self._reported = True
