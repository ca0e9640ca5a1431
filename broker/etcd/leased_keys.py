"""Keys in etcd that stand there while a process runs: under a lease that it renews."""

from collections.abc import Mapping
from typing import Final, Self

import anyio

from broker.etcd.etcd_errors import LeaseGone, Unanswered
from broker.etcd.members import Members
from broker.etcd.requests import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, TXN
from broker.ports.meta import MetaError
from schemas.generated.etcdserverpb import (
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    PutRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)

TTL_S: Final = 10
"""How long the keys of a process that died stay; longer than an election of etcd's takes."""
RENEWALS_PER_LEASE: Final = 5
CLOSE_S: Final = 1.0


class LeasedKeys:
    """An async context manager: the keys are there when the block begins, and gone after it.

    `keep` renews the lease, and puts the keys again when it has ended: etcd was away for too long.
    Entering raises MetaError.
    """

    def __init__(self, members: Members, puts: Mapping[bytes, bytes], ttl_s: int = TTL_S) -> None:
        self._members, self._puts, self._ttl_s = members, puts, ttl_s
        self._lease = 0
        self._stands = False

    async def keep(self) -> None:
        """Renew until it is cancelled; a renewal that fails is tried again."""
        while True:
            await anyio.sleep(self._ttl_s / RENEWALS_PER_LEASE)
            try:
                await self.renew()
            except MetaError:
                continue  # nobody can see the keys meanwhile either

    async def renew(self) -> None:
        """Renew once. Raises MetaError."""
        if not (self._lease and await self._is_renewed()):
            self._stands = False
            await self._put()
        elif not self._stands:
            await self._put_under(self._lease)
            self._stands = True

    async def end(self) -> None:
        """Take the keys away, in a bounded time."""
        if not self._lease:
            return
        request = LeaseRevokeRequest(id=self._lease)
        with anyio.CancelScope(shield=True):
            try:
                await self._members.call(LEASE_REVOKE, request, LeaseRevokeResponse, call_s=CLOSE_S)
            except (MetaError, Unanswered):
                pass  # the lease ends by itself

    async def __aenter__(self) -> Self:
        await self._put()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def _is_renewed(self) -> bool:
        # A stream of one request: etcd answers it, and ends when the requests have ended.
        request = LeaseKeepAliveRequest(id=self._lease)
        try:
            answer = await self._members.answered(LEASE_KEEP_ALIVE, request, LeaseKeepAliveResponse)
        except LeaseGone:
            return False
        return answer.ttl > 0

    async def _put(self) -> None:
        request = LeaseGrantRequest(ttl=self._ttl_s)
        granted = await self._members.answered(LEASE_GRANT, request, LeaseGrantResponse)
        # Known from now on, so that leaving takes away what a lost answer leaves behind.
        self._lease = granted.id
        await self._put_under(granted.id)
        self._stands = True

    async def _put_under(self, lease: int) -> None:
        puts = [PutRequest(key=key, value=it, lease=lease) for key, it in self._puts.items()]
        # Sent twice it does no harm: the keys are of this process alone.
        await self._members.answered(
            TXN, TxnRequest(success=[RequestOp(request_put=it) for it in puts]), TxnResponse
        )
