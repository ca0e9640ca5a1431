"""Split a stored record into single messages, in the form in which single messages are stored.

A batch does not store that form: it is put together from the payload, the properties that all
messages of the batch share, and the key. A packed body is unpacked once for each call. Rows become
JSON.
"""

from itertools import accumulate, pairwise

from broker.model.batch import Codec
from broker.model.message import MessageType
from broker.model.record import Record, RecordSlice
from broker.model.txn import TxnPart
from schemas.arrow.json_rows import rows_as_json
from schemas.encoding.entries import write_entry
from schemas.encoding.varint import Malformed, varint
from schemas.packing import unpack
from schemas.properties.batch_header import Shares, delete_shares, insert_shares
from schemas.properties.keys import ROW_KEY, TXN
from schemas.properties.txn_context import TxnContext
from schemas.scan import STORED_PAYLOAD, STORED_PROPERTY


def stored_of(part: RecordSlice) -> list[bytes]:
    """Each message in the form in which single messages are stored.

    Raises BadPacking, BadArrow, though appends with such bodies are refused.
    """
    record, batch = part.record, part.record.batch
    if batch is None:
        return payloads_of(part)
    keys = batch.keys.split(len(record.sizes))
    own = batch.own.split(len(record.sizes))
    shares, in_txn = _shares(record, batch.properties), _of_txn(record.txn)
    messages: list[bytes] = []
    for index, payload in enumerate(payloads_of(part), part.first):
        # The own properties last: of two entries with one key protobuf takes the last.
        stored = [shares.of(index), in_txn, own[index]]
        # proto3 leaves an empty field out.
        if payload:
            stored = [STORED_PAYLOAD, varint(len(payload)), payload, *stored]
        if (key := keys[index]) is not None:
            stored.append(write_entry(STORED_PROPERTY, ROW_KEY.key, ROW_KEY.encode(key)))
        messages.append(b"".join(stored))
    return messages


def _shares(record: Record, properties: bytes) -> Shares:
    """The properties of each message: a batch in a collection has one header for all its rows."""
    try:
        if record.kind == MessageType.INSERT:
            return insert_shares(properties, len(record.sizes))
        if record.kind == MessageType.DELETE:
            return delete_shares(properties, len(record.sizes))
    except Malformed:
        # Earlier releases stored a header that is none: it must not stop every reader for ever.
        pass
    return Shares(properties, properties, 0)


def _of_txn(part: TxnPart | None) -> bytes:
    """The transaction property, which Milvus's producers send with each message of one."""
    if part is None:
        return b""
    context = TxnContext(part.id, part.keepalive_ms)
    return write_entry(STORED_PROPERTY, TXN.key, TXN.encode(context))


def payloads_of(part: RecordSlice) -> list[bytes]:
    """The payload of each message of a batch, else its stored form. Raises BadPacking, BadArrow."""
    record, batch = part.record, part.record.batch
    body, sizes = record.body, record.sizes
    if batch is not None and batch.codec is Codec.ARROW:
        return rows_as_json(body, part.first, part.end)
    if batch is not None and batch.codec is not Codec.NONE:
        body = unpack(batch.codec, body, sum(sizes))
    start = sum(sizes[: part.first])
    ends = list(accumulate(sizes[part.first : part.end], initial=start))
    return [body[first:end] for first, end in pairwise(ends)]
