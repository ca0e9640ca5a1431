"""Frame the messages of a stored record one by one, as Milvus's consumers read them."""

from broker.codec.stored_messages import stored_of
from broker.model.record import RecordSlice, RecordSliceInTxn
from schemas.encoding.frames import frames
from schemas.wire import consume_in_txn, consume_run


def framed_slice(part: RecordSlice) -> bytes:
    """A ConsumeResponse with its gRPC framing for each message.

    Raises BadPacking, BadArrow, though appends with such bodies are refused.
    """
    record, first_id = part.record, part.record.base_id + part.first
    stored = stored_of(part)
    if isinstance(part, RecordSliceInTxn):
        where = part.tick, part.last_confirmed_id, record.term
        return frames([consume_in_txn(first_id + at, *where, it) for at, it in enumerate(stored)])
    confirmed = record.last_confirmed_of(part.first)
    return consume_run(first_id, part.first_tick, confirmed, record.term, stored)
