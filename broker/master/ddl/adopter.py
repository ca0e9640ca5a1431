"""Announces the collections of an earlier release: each by one CreateCollection, once.

It works in the background and at a bounded pace: a few collections at once, then a pause, so that
requests are served meanwhile. What cannot be announced now, because the node of a pchannel is away
or a name is in use, is tried again later. A broadcast that was recorded goes on whatever dies; the
next incarnation passes over what is announced. The plan checks under the name of the collection
that it is the same one, not announced, and still has the schema that was read here.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio
import structlog

from actors import Actor, ActorError, AskTimeout, Backoff, Context, Envelope, Ref
from broker.coordinator.assignment.messages import NextAssignment
from broker.coordinator.broadcast.messages import PlanBroadcast
from broker.coordinator.catalog.collection_records import ADOPTED_KEY, CollectionRecords
from broker.coordinator.json_records import encode_fields
from broker.coordinator.retries import Retries
from broker.core.cluster.assignment import BROADCAST_VERSION
from broker.core.master.ddl_keys import ddl_keys
from broker.core.naming import pchannel_of
from broker.master.segments.segment_owners import Owners
from broker.model.broadcast import ADOPTION_KEY
from broker.model.collection import Collection, RowSchema
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName, VChannelName
from broker.model.master.ddl import AdoptCollection, PlannedRequest
from broker.model.master.fields import TableSchema
from broker.ports.meta import MetaError, MetaStore

AT_ONCE: Final = 16
"""Collections that are read, and announced, together: they share writes of the store."""
FIRST_S: Final = 2.0
"""After the start, which has other work."""
PAUSE_S: Final = 0.05
WAIT_S: Final = 1.0
ASK_S: Final = 5.0
"""For the actors that are asked. A broadcast that is recorded by then goes on without a caller."""
RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0

RowFields = Callable[[str, RowSchema], Awaitable[TableSchema]]
"""The fields that stand for the columns of a collection. Refused where they cannot be read."""

_SETTLED: Final = (StreamingCode.IGNORED_OPERATION, StreamingCode.CHANNEL_NOT_EXIST)
"""It is announced already, or was dropped."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AdoptionParts:
    """Dependencies. `owners`: of the pchannels that take appends now."""

    store: MetaStore
    find: Callable[[str], Ref[Any]]
    broadcaster_path: str
    assigner_path: str
    owners: Owners
    control: VChannelName
    fields: RowFields


@dataclass(frozen=True, slots=True)
class Adopt:
    """A timer: announce the next few."""


class Adopter(Actor[Adopt]):
    """See the module."""

    _context: Context[Adopt]

    def __init__(self, parts: AdoptionParts) -> None:
        self._parts = parts
        self._records = CollectionRecords(parts.store)
        self._after = ""
        """The last name of this pass over all collections."""
        self._adopted = self._left = 0
        self._cause = ""
        self._done = False
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._retries = Retries(backoff, "collections of an earlier release are not announced yet")

    async def started(self, context: Context[Adopt]) -> None:
        self._context = context
        context.after(FIRST_S, Adopt())

    async def receive(self, batch: Sequence[Envelope[Adopt]]) -> None:
        try:
            pause_s = await self._next_few()
        except (ActorError, MetaError) as error:
            pause_s = self._failed(str(error))
        if not self._done:
            self._context.after(pause_s, Adopt())

    def statistics(self) -> Mapping[str, int | float | str]:
        found: dict[str, int | float | str] = {"adopted": self._adopted, "done": int(self._done)}
        return {**found, "error": self._retries.error} if self._retries.failures else found

    async def _next_few(self) -> float:
        """How long to pause then."""
        if not self._after and await self._parts.store.get(ADOPTED_KEY) is not None:
            self._done = True
            return 0.0
        found = await self._records.page(self._after, AT_ONCE)
        old = [it for it in found if not it.announced]
        if old and not await self._enabled():
            return WAIT_S
        left = self._left
        if old and (silent := await self._adopt_all(old)):
            # More would only wait beside these, and every change of a definition has a place there.
            self._left = left
            return self._failed(f"a channel does not take the message about '{silent[0]}'")
        if len(found) == AT_ONCE:
            self._after = found[-1].name
            return PAUSE_S if old else 0.0
        return await self._passed(any_found=bool(self._after or found))

    async def _passed(self, *, any_found: bool) -> float:
        """All were looked at: either that is all, or those that are left come again later."""
        self._after, left, self._left = "", self._left, 0
        if left:
            return self._failed(f"{left} collections, among them {self._cause}")
        if any_found:
            await self._parts.store.write({ADOPTED_KEY: encode_fields({})})
        if self._adopted:
            log.info("collections of an earlier release are announced", count=self._adopted)
        self._retries.succeeded()
        self._done = True
        return 0.0

    async def _enabled(self) -> bool:
        """Whether the cluster has a streaming version with broadcasts."""
        assigner = self._parts.find(self._parts.assigner_path)
        table = await assigner.ask(NextAssignment(), deadline_s=ASK_S)
        return table is not None and table.streaming_version >= BROADCAST_VERSION

    async def _adopt_all(self, old: Sequence[Collection]) -> Sequence[str]:
        """The names of those whose broadcasts go on without an end in sight."""
        served = frozenset(await self._parts.owners())
        silent: list[str] = []
        async with anyio.create_task_group() as adopting:
            for collection in old:
                adopting.start_soon(self._adopt, collection, served, silent)
        return silent

    async def _adopt(
        self, old: Collection, served: frozenset[PChannelName], silent: list[str]
    ) -> None:
        """Announce one collection, or note why it is left for later."""
        places = {pchannel_of(self._parts.control)}
        if old.schema is not None:
            places.update(map(pchannel_of, old.vchannels))
        # Its broadcast would hold the name until the pchannel is back.
        if away := sorted(places - served):
            self._leave(old, f"no node serves {away[0]} now")
            return
        try:
            await self._announce(old)
            self._adopted += 1
        except Refused as error:
            if error.refusal.code not in _SETTLED:
                self._leave(old, error.refusal.cause)
        except AskTimeout:
            silent.append(old.name)
        except (ActorError, MetaError) as error:
            self._leave(old, str(error))

    async def _announce(self, old: Collection) -> None:
        fields = None
        if old.schema is not None:
            fields = await self._parts.fields(old.name, old.schema)
        ddl = AdoptCollection(old.name, old.id, fields, old.schema)
        # The same in each attempt, so that one joins the broadcast that an earlier one has started.
        key = f"{ADOPTION_KEY}{old.id}"
        request = PlannedRequest(ddl, ddl_keys(ddl), key, fingerprint=key)
        broadcaster = self._parts.find(self._parts.broadcaster_path)
        await broadcaster.ask(PlanBroadcast(request), deadline_s=ASK_S)

    def _leave(self, old: Collection, why: str) -> None:
        self._left += 1
        self._cause = f"'{old.name}': {why}"

    def _failed(self, cause: str) -> float:
        self._retries.failed(cause)
        return self._retries.pause_s(self._context.random)
