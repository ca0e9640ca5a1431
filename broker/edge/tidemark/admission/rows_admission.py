"""Decide which batches of Arrow rows an Appender takes, and say why the others are refused.

A body is checked whole, once, before it is stored; readers rely on that.

Why a schema may be cached: it only grows, so rows that fit an old version fit the newest too. Rows
that do not fit the cached one cause a look at the newest.
"""

from collections import OrderedDict
from typing import Final

from broker.core.naming import collection_id_of
from broker.edge.rpc.arrow_library import require_arrow
from broker.edge.tidemark.admission.batch_admission import BatchAdmission, oversize_batch
from broker.edge.tidemark.admission.shard_admission import dropped_refusal
from broker.edge.tidemark.admission.unpacking import ON_THE_LOOP_BYTES_MAX, Unpacking
from broker.model.batch import NewBatch
from broker.model.collection import RowSchema
from broker.model.failure import Dropped, Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import CollectionId
from broker.model.message import MessageType
from broker.node.append.group_commit import BATCH_MESSAGES_MAX
from broker.ports.row_schemas import NoShard, RowSchemas
from schemas.arrow.columns import Misfit
from schemas.arrow.ipc import BadArrow, outline
from schemas.arrow.rows import Bounds, Checked, check_rows
from schemas.batches import ScannedBatch
from schemas.properties.keys import ROW_SCHEMA

SCHEMAS_MAX: Final = 1024


class RowsAdmission:
    """The checks of rows, shared by all Append streams of a server."""

    def __init__(
        self, schemas: RowSchemas, bytes_max: int, unpacking: Unpacking | None = None
    ) -> None:
        """`unpacking` is that of the server."""
        self._schemas = schemas
        self._unpacking = unpacking or Unpacking()
        self._bounds = Bounds(BATCH_MESSAGES_MAX, bytes_max)
        self._known: OrderedDict[CollectionId, RowSchema] = OrderedDict()

    async def judge(self, batch: ScannedBatch, plain: BatchAdmission) -> NewBatch | Refusal:
        """The rows as an Appender takes them, or the refusal for their producer."""
        refusal = plain.refusal(batch) or self._misused_fields(batch)
        if refusal is not None:
            return refusal
        try:
            await require_arrow()
            checked = await self._checked(batch)
            if isinstance(checked, Refusal):
                return checked
        except Misfit as error:
            return Refusal(StreamingCode.SCHEMA_VERSION_MISMATCH, str(error))
        except BadArrow as error:
            return invalid_argument(str(error)).refusal
        except Refused as error:
            return error.refusal
        # Rows have no sizes of their own. Readers of single messages get them as JSON, so each row
        # counts as its share of that text, rounded up.
        sizes = (-(-checked.text_bytes // checked.rows),) * checked.rows
        version = ROW_SCHEMA.entry(checked.version)
        return plain.accepted(batch, sizes, checked.unpacked_bytes, version)

    def _misused_fields(self, batch: ScannedBatch) -> Refusal | None:
        if batch.sizes or batch.key_sizes or batch.keys:
            return invalid_argument("a batch of rows has neither sizes nor keys; set none").refusal
        if batch.own_sizes or batch.own:
            cause = "a batch of rows has shared properties only; set no own ones"
            return invalid_argument(cause).refusal
        if batch.type not in (0, MessageType.INSERT):
            return invalid_argument(
                f"messages of type {batch.type} cannot be rows; leave the type out"
            ).refusal
        if len(batch.body) > self._bounds.unpacked_bytes_max:
            return oversize_batch(len(batch.body), self._bounds.unpacked_bytes_max)
        return None

    async def _checked(self, batch: ScannedBatch) -> Checked | Dropped:
        """Raises BadArrow, Refused."""
        collection = collection_id_of(batch.vchannel)
        if collection is None:
            raise BadArrow(
                f"vchannel {batch.vchannel!r} is not of a collection, so it has no schema"
            )
        known = self._known.get(collection)
        if known is not None:
            try:
                return await self._check(batch.body, known)
            except Misfit:
                pass  # the collection may have newer columns than the cached schema
        newest = await self._schemas.newest(collection)
        if newest is None:
            # Dropped since ShardAdmission looked, which may be a second ago.
            if await self._schemas.shard(batch.vchannel) is NoShard.DROPPED:
                return dropped_refusal(batch.vchannel)
            raise BadArrow(
                f"collection {collection} has no schema; create it with one, or append messages"
            )
        self._remember(collection, newest)
        return await self._check(batch.body, newest)

    async def _check(self, body: bytes, schema: RowSchema) -> Checked:
        given = body, schema.arrow, schema.widths, self._bounds
        size = len(body)
        if size <= ON_THE_LOOP_BYTES_MAX:
            # What is small as it came may be large inside. Raises BadArrow.
            size = max(size, outline(body).unpacked_bytes)
        return await self._unpacking.run(size, check_rows, *given)

    def _remember(self, collection: CollectionId, schema: RowSchema) -> None:
        self._known[collection] = schema
        self._known.move_to_end(collection)
        while len(self._known) > SCHEMAS_MAX:
            self._known.popitem(last=False)
