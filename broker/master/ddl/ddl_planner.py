"""Plans a change while its keys are held: checks it against the table, and takes its ids."""

from collections.abc import Iterable, Sequence
from typing import Final, assert_never

from broker.core.master.ddl_answer import DdlAnswer, write_answer
from broker.core.master.stale_timestamps import PlannedTimestamps
from broker.master.ddl.collection_plans import CollectionPlans
from broker.master.ddl.part_plans import PartPlans
from broker.master.ddl.read_ahead import ReadAhead
from broker.master.table.record_sizes import record_problem
from broker.master.table.table_records import TableRecords
from broker.model.broadcast import Broadcast
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import PChannelName, VChannelName
from broker.model.master.ddl import (
    AdoptCollection,
    ChangeCompaction,
    ChangeRetention,
    ChangeSchema,
    CreateAlias,
    CreateCollection,
    CreateDatabase,
    CreateIndex,
    CreatePartition,
    DropAlias,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropPartition,
    GivenBroadcast,
    PlannedRequest,
)
from broker.model.master.table_change import (
    AddCollection,
    AddPartition,
    PointAlias,
    PutIndex,
    RemoveDatabase,
    TableChange,
)
from broker.ports.headers import BadHeader
from broker.ports.id_source import IdSource
from broker.ports.master.ddl_messages import DdlMessages
from broker.ports.meta import MetaStore

COPIES_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of all copies together, which are in memory at the same time."""

Planned = tuple[TableChange, Sequence[VChannelName]]
"""A change, and the vchannels that get it beside the control channel."""


class DdlPlanner:
    """See `broker.ports.master.broadcast_planner.BroadcastPlanner`."""

    def __init__(
        self,
        store: MetaStore,
        pchannels: Sequence[PChannelName],
        control: VChannelName,
        messages: DdlMessages,
        ids: IdSource,
    ) -> None:
        self._messages = messages
        self._control = control
        self._ahead = ReadAhead(store)
        records = TableRecords(self._ahead)
        self._collections = CollectionPlans(records, pchannels, ids)
        self._parts = PartPlans(records, ids)
        self._timestamps = PlannedTimestamps()
        self._together = False

    def restore(self, recorded: Iterable[Broadcast]) -> None:
        """See BroadcastPlanner."""
        for broadcast in recorded:
            self._timestamps.planned(broadcast.keys, broadcast.timestamp)
            if not broadcast.body:
                continue
            try:
                change = self._messages.decode(broadcast.type, broadcast.body, broadcast.vchannels)
            except BadHeader:
                continue  # of a client of Milvus; it changes nothing
            # Without a key it is of another cluster: no request of ours finishes under it.
            if isinstance(change, AddCollection) and broadcast.request_key:
                self._collections.reserve(broadcast.request_key, change.id, change.vchannels)

    async def read_ahead(self, requests: Sequence[PlannedRequest]) -> None:
        """See BroadcastPlanner."""
        self._together = True
        await self._ahead.read([it.ddl for it in requests], self._collections.next_id)

    def forget(self) -> None:
        """See BroadcastPlanner."""
        self._together = False
        self._ahead.forget()

    async def plan(self, request: PlannedRequest) -> Broadcast:
        """See BroadcastPlanner."""
        newest = self._timestamps.newest(request.keys)
        if request.timestamp and request.timestamp < newest:
            raise invalid_argument(
                f"timestamp {request.timestamp} is older than {newest}, of a change of the same"
                " name that was planned before; take a new timestamp"
            )
        if isinstance(request.ddl, GivenBroadcast):
            change = request.ddl.change
            await self._check_given(change)
            broadcast = request.ddl.broadcast
        else:
            try:
                # Nothing is left to read, most often, when plans were read ahead together.
                await self._ahead.read([request.ddl], self._collections.next_id)
                change, vchannels = await self._planned(request)
            finally:
                if not self._together:
                    self._ahead.forget()
            broadcast = self._broadcast(request, change, vchannels)
        # Before the record: a recorded change whose records do not fit could never be applied.
        if problem := record_problem(change):
            raise invalid_argument(problem)
        self._timestamps.planned(request.keys, request.timestamp)
        if isinstance(change, AddCollection):
            self._collections.reserve(request.request_key, change.id, change.vchannels)
        return broadcast

    def finished(self, request_key: str) -> None:
        """See BroadcastPlanner."""
        self._collections.release(request_key)

    async def _planned(self, request: PlannedRequest) -> Planned:
        match request.ddl:
            case (
                CreateCollection()
                | AdoptCollection()
                | DropCollection()
                | ChangeSchema()
                | ChangeRetention()
                | ChangeCompaction()
            ) as of_collection:
                return await self._collections.plan(of_collection)
            case CreateDatabase() | DropDatabase() as of_database:
                return await self._collections.plan_database(of_database), ()
            case (
                CreatePartition()
                | DropPartition()
                | CreateIndex()
                | DropIndex()
                | CreateAlias()
                | DropAlias()
            ) as of_part:
                return await self._parts.plan(of_part)
            case GivenBroadcast():
                raise AssertionError(request)
            case _:
                assert_never(request.ddl)

    async def _check_given(self, change: TableChange) -> None:
        """Refuse a creation whose name or id is taken, and the drop of a database in use."""
        match change:
            case AddCollection():
                taken = await self._collections.taken_by(change)
                if taken is not None:
                    raise taken
            case RemoveDatabase(name):
                await self._collections.check_empty(name)
            case _:
                pass

    def _broadcast(
        self, request: PlannedRequest, change: TableChange, vchannels: Sequence[VChannelName]
    ) -> Broadcast:
        encoded = self._messages.encode(change)
        # The control channel first: its copy orders the changes.
        places = (self._control, *vchannels)
        if encoded.size * len(places) > COPIES_BYTES_MAX:
            raise Refused(
                StreamingCode.INVALID_ARGUMENT,
                f"{len(places)} copies of {encoded.size} bytes exceed {COPIES_BYTES_MAX} bytes;"
                " use fewer shards, or a smaller schema",
            )
        return Broadcast(
            type=encoded.type,
            vchannels=places,
            keys=request.keys,
            body=encoded.body,
            size=encoded.size,
            request_key=request.request_key,
            fingerprint=request.fingerprint,
            answer=write_answer(answer_of(change)),
            timestamp=request.timestamp,
        )


def answer_of(change: TableChange) -> DdlAnswer:
    """What the caller of a change is told."""
    match change:
        case AddCollection():
            ids = [id for _, id in change.partitions]
            return DdlAnswer(change.id, ids[0] if ids else 0, change.vchannels)
        case AddPartition():
            return DdlAnswer(change.id)
        case PutIndex():
            return DdlAnswer(change.index.id)
        case PointAlias():
            return DdlAnswer(change.collection)
        case _:
            return DdlAnswer(getattr(change, "id", 0))
