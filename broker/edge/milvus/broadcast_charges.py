"""Holds broadcasts to the limits of their collections and of who sends them, before they begin.

Not at the appends of the copies: a broadcast that has begun completes.
"""

from collections import Counter

import anyio

from broker.core.naming import collection_id_of
from broker.core.pressure.limit_rules import Subject
from broker.core.pressure.storage_use import storage_refusal
from broker.edge.rpc.quotas import Quotas
from broker.model.broadcast import Broadcast
from broker.model.failure import ComeLater, Throttled
from broker.model.message import BODY_TYPES
from broker.ports.row_schemas import RowSchemas
from broker.ports.space.collection_sizes import CollectionSizes


class BroadcastCharges:
    """Of one server. Use it while there are limits."""

    def __init__(self, quotas: Quotas, schemas: RowSchemas, sizes: CollectionSizes) -> None:
        self._quotas, self._schemas, self._sizes = quotas, schemas, sizes

    async def take(self, broadcast: Broadcast, caller: str) -> None:
        """Count each copy as an append of the caller, and wait for them. Raises Refused."""
        copies = Counter[Subject]()
        limits: dict[str, tuple[str, int]] = {}
        for vchannel in broadcast.vchannels:
            subjects = await self._quotas.subjects(vchannel, caller)
            copies.update(subjects)
            if broadcast.type in BODY_TYPES and (limit := self._quotas.storage_of(subjects[0])):
                limits[vchannel] = subjects[0].name, limit
        await self._check_storage(limits)
        taken = self._quotas.take_copies(copies, len(broadcast.body))
        if isinstance(taken, Throttled):
            raise ComeLater(taken)
        await anyio.sleep(taken.wait_s)

    async def _check_storage(self, limits: dict[str, tuple[str, int]]) -> None:
        """By what the nodes have told of the collections. Raises Refused."""
        looked_at: set[str] = set()
        for vchannel, (name, limit) in limits.items():
            if vchannel in looked_at:
                continue
            id = collection_id_of(vchannel)
            found = None if id is None else await self._schemas.found(id)
            vchannels = [it for it, its in limits.items() if its[0] == name]
            if found is not None and vchannel in found.vchannels:
                vchannels = [*found.vchannels]
            looked_at.update(vchannels)
            total = await self._sizes.of(vchannels)
            if total >= limit:
                self._quotas.count_refused()
                raise ComeLater(storage_refusal(name, total, limit))
