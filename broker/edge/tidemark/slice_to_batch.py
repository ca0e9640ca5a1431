"""Turn a part of a record into a ReadBatch: as it is stored, or rows with some of their columns.

Bodies are not copied, except the chosen columns of rows, and those of batches whose messages have
properties of their own: these go out message by message, as every release of the client reads them.

Next: broker/client/read/batch_subscription.py
"""

from dataclasses import replace

from broker.codec.stored_messages import stored_of
from broker.model.batch import BatchPart, Codec
from broker.model.failure import Refused, StreamingCode
from broker.model.record import RecordSlice, RecordSliceInTxn
from schemas.arrow.ipc import BadArrow
from schemas.arrow.rows import select_columns
from schemas.batches import ARROW_ROWS, STORED, ReadBatch


def batch_of(part: RecordSlice) -> ReadBatch:
    """The slice as it is stored."""
    record, batch = part.record, part.record.batch
    plain = ReadBatch(
        vchannel=record.vchannel,
        sizes=record.sizes,
        message_id=record.base_id,
        tick=record.base_tick,
        last_confirmed_id=record.last_confirmed_id,
        type=record.kind,
        form=STORED,
        first=part.first,
        end=part.end,
        body=record.body,
    )
    if batch is None:
        return plain
    if isinstance(part, RecordSliceInTxn):
        # By these a reader knows that all messages have one tick, the commit's.
        ids = tuple(range(record.base_id, record.next_id))
        plain = plain._replace(tick=part.tick, last_confirmed_id=part.last_confirmed_id, ids=ids)
    if batch.codec is Codec.ARROW:
        return plain._replace(form=ARROW_ROWS, sizes=(), properties=batch.properties)
    if batch.own.sizes:
        stored = stored_of(replace(part, first=0, end=len(record.sizes)))
        return plain._replace(sizes=tuple(map(len, stored)), body=b"".join(stored))
    return _of_payloads(plain, batch)


def _of_payloads(plain: ReadBatch, batch: BatchPart) -> ReadBatch:
    return plain._replace(
        form=0,
        properties=batch.properties,
        codec=batch.codec,
        key_sizes=batch.keys.sizes,
        keys=batch.keys.body,
    )


class RowProjection:
    """What a reader of rows gets. `columns`: those of each batch that are named; empty for all."""

    def __init__(self, columns: frozenset[str]) -> None:
        self._columns = columns

    def batch_of(self, part: RecordSlice) -> ReadBatch | None:
        """The rows; None for a batch that has none. Raises Refused when they are damaged."""
        batch = part.record.batch
        if batch is None or batch.codec is not Codec.ARROW:
            return None
        whole = batch_of(part)
        if not self._columns:
            return whole
        try:
            return whole._replace(body=select_columns(whole.body, self._columns))
        except BadArrow as error:
            where = f"message {part.record.base_id} of {part.record.vchannel}"
            raise Refused(StreamingCode.UNRECOVERABLE, f"{where}: {error}") from error
