"""Places in etcd where each write leaves its number, so that it takes effect once or never.

A write expects its place at the revision of the write before it, and puts its own number there, in
the same transaction. So a repeated one finds the number and knows that it was applied; and one
whose outcome stayed open is decided by deleting its place, before the store is used again.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import anyio

from broker.etcd.etcd_errors import Unanswered
from broker.etcd.members import Members
from broker.etcd.requests import (
    DELETE_RANGE,
    LEASE_GRANT,
    LEASE_REVOKE,
    TXN,
    Keys,
)
from broker.ports.meta import MetaError
from broker.transport.codec import WireMessage
from schemas.generated.etcdserverpb import (
    DeleteRangeRequest,
    DeleteRangeResponse,
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    PutRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)

PLACES = 32
"""Writes of one process under way; more wait."""
LEASE_S = 600
"""How long etcd keeps the places of a process that died."""
RENEW_S = 200.0
"""The age at which new places are made: their lease outlives each write by far."""
LEFT_MIN = 8
"""Fewer places are left after failures: new ones are made."""
CLOSE_S = 1.0

A = TypeVar("A", bound=WireMessage)


@dataclass(slots=True)
class WritePlace:
    """A place for one write at a time. `sure`: no write of an open outcome expects its revision."""

    key: bytes
    revision: int
    lease: int
    sure: bool = True

    def mark(self, number: bytes) -> PutRequest:
        """Leave the number of a write here."""
        return PutRequest(key=self.key, value=number, lease=self.lease)


class Writers:
    """The places of one process. Their lease takes them away when it has died."""

    def __init__(self, members: Members, keys: Keys) -> None:
        self._members = members
        self._keys = keys
        self._lock = anyio.Lock()
        self._room = anyio.Semaphore(PLACES)
        self._free: list[WritePlace] = []
        self._open: list[bytes] = []
        self._lease = 0
        self._left = 0
        self._made_s = 0.0
        self._failures = 0
        self._failure = ""

    @asynccontextmanager
    async def place(self) -> AsyncIterator[WritePlace]:
        """A place for one write, after the outcome of earlier ones is decided. Raises MetaError.

        The block makes it unsure before it sends, and sure again when it knows the outcome.
        """
        try:
            with anyio.fail_after(self._members.call_s):
                await self._room.acquire()
        except TimeoutError:
            cause = f"{PLACES} writes wait for {self._members.place}"
            raise MetaError(f"{cause}; none has ended for {self._members.call_s:g} s") from None
        try:
            await self.decide()
            taken = await self._taken()
            try:
                yield taken
            finally:
                self._give_back(taken)
        finally:
            self._room.release()

    async def decide(self) -> None:
        """End the writes of an open outcome: what has not taken effect by now, never will."""
        if not self._open:
            return
        failed: list[MetaError] = []
        async with self._turn(), anyio.create_task_group() as deleting:
            # At once: one after the other, a slow etcd would take longer than those behind wait.
            # They are about PLACES at most. Not in a transaction: a full database would refuse it.
            for key in tuple(self._open):
                deleting.start_soon(self._delete, key, failed)
        if failed:
            raise failed[0]

    def forget(self, lease: int) -> None:
        """Use the places of this lease no more: they are gone."""
        if lease == self._lease:
            self._lease, self._free = 0, []

    async def close(self) -> None:
        """Take the places away, in a bounded time; otherwise their lease does."""
        if not self._lease:
            return
        request, self._lease, self._free = LeaseRevokeRequest(id=self._lease), 0, []
        try:
            await self._members.call(LEASE_REVOKE, request, LeaseRevokeResponse, call_s=CLOSE_S)
        except (MetaError, Unanswered):
            pass  # the lease ends by itself

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One caller at a time asks etcd here. Raises MetaError.

        When etcd does not answer one of them, those who wait fail with it: in turn, each of them
        would wait for as long again. Otherwise each looks at what is left to do, and has the time
        of a call for it, however late its turn is: a call with less would fail those who wait
        although etcd answers.
        """
        call_s, failures = self._members.call_s, self._failures
        try:
            with anyio.fail_after(call_s):
                await self._lock.acquire()
        except TimeoutError:
            cause = f"no answer from {self._members.place} for this call within {call_s:g} s"
            raise MetaError(f"{cause}: others of this process still wait for theirs") from None
        try:
            if self._failures != failures:
                raise MetaError(self._failure)
            yield
        finally:
            self._lock.release()

    async def _taken(self) -> WritePlace:
        async with self._turn():
            age_s = anyio.current_time() - self._made_s
            if not self._free or age_s > RENEW_S or self._left < LEFT_MIN:
                await self._make()
            return self._free.pop()

    def _give_back(self, place: WritePlace) -> None:
        if not place.sure:
            self._open.append(place.key)
            self._left -= place.lease == self._lease
        elif place.lease == self._lease:
            self._free.append(place)

    async def _make(self) -> None:
        """New places under a new lease, which only then replace the old ones."""
        made_s = anyio.current_time()  # before it is granted: no later than etcd's clock begins
        granted = await self._call(LEASE_GRANT, LeaseGrantRequest(ttl=LEASE_S), LeaseGrantResponse)
        keys = [self._keys.writer(granted.id, number) for number in range(PLACES)]
        puts = [PutRequest(key=key, lease=granted.id) for key in keys]
        request = TxnRequest(success=[RequestOp(request_put=put) for put in puts])
        made = await self._call(TXN, request, TxnResponse)
        revision = made.header.revision if made.header is not None else 0
        self._free = [WritePlace(key, revision, granted.id) for key in keys]
        self._lease, self._left, self._made_s = granted.id, PLACES, made_s

    async def _delete(self, key: bytes, failed: list[MetaError]) -> None:
        try:
            await self._call(DELETE_RANGE, DeleteRangeRequest(key=key), DeleteRangeResponse)
        except MetaError as error:
            failed.append(error)
        else:
            self._open.remove(key)

    async def _call(self, path: str, request: WireMessage, answer: type[A]) -> A:
        try:
            return await self._members.call(path, request, answer)
        except Unanswered as failure:
            self._failures, self._failure = self._failures + 1, str(failure)
            raise MetaError(self._failure) from failure
