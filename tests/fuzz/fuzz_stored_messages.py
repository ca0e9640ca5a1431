"""Messages as they are stored, of every type: what the log, groups and the master read in them."""

from broker.codec.read_ddl import read_change
from broker.codec.stored_headers import StoredHeaders
from broker.model.batch import BatchKeys, BatchPart, Codec, OwnProperties
from broker.model.ids import MessageId, SegmentId, Term, TimeTick, VChannelName
from broker.model.message import Delivered, MessageType
from broker.model.record import Record, RecordSlice
from broker.ports.headers import BadHeader
from schemas.encoding.entries import write_entry
from schemas.encoding.varint import Malformed
from schemas.scan import stored_properties
from schemas.stored import size_of, stored_form, with_header

_HEADERS = StoredHeaders()
_KINDS = sorted(map(int, MessageType))


def check(data: bytes) -> None:
    """BadHeader, Malformed or an answer; texts that mean nothing mean nothing."""
    if not data:
        return
    kind, stored = _KINDS[data[0] % len(_KINDS)], data[1:]
    _HEADERS.announced(stored)
    _HEADERS.batch_mark(stored)
    _HEADERS.plain_key(stored)
    _HEADERS.broadcast_marks(stored, (len(stored),))
    _HEADERS.delivery_times(stored)
    _HEADERS.keys(Delivered(MessageId(1), TimeTick(1), MessageId(1), Term(1), stored))
    _HEADERS.letters([Delivered(MessageId(1), TimeTick(1), MessageId(1), Term(1), stored)])
    for read in (_effect, _batch_effect, _change, _stage, _released, _rewritten):
        try:
            read(kind, stored)
        except (BadHeader, Malformed):
            pass


def _effect(kind: int, stored: bytes) -> None:
    _HEADERS.effect(kind, stored)


def _batch_effect(kind: int, stored: bytes) -> None:
    if kind in (MessageType.INSERT, MessageType.DELETE):
        _HEADERS.batch_effect(kind, stored)
    _batch(kind, stored)


def _change(kind: int, stored: bytes) -> None:
    read_change(kind, stored, [VChannelName("a_1v0")])


def _stage(_: int, stored: bytes) -> None:
    _HEADERS.stage(stored)


def _released(_: int, stored: bytes) -> None:
    _HEADERS.released_message(stored)


def _rewritten(kind: int, stored: bytes) -> None:
    stored_properties(stored)
    size_of(stored)
    with_header(stored, b"\x08\x01")
    _HEADERS.with_segment(stored, SegmentId(7), 100)
    _HEADERS.with_flushed(kind, stored, [SegmentId(1), SegmentId(2)])


def _batch(kind: int, properties: bytes) -> None:
    part = BatchPart(
        properties, Codec.NONE, BatchKeys((2, 0), b"k"), None, OwnProperties((0, 0), b"")
    )
    record = Record(
        Term(1), MessageId(1), TimeTick(1), MessageId(1), kind, "a_1v0", (1, 2), b"abc", None, part
    )
    assert len(_HEADERS.stored(RecordSlice(record, 0, 2))) == 2
    _HEADERS.released(RecordSlice(record, 1, 2))


def _seed(number: int, kind: int, more: dict[str, str]) -> bytes:
    stored = stored_form(kind, 1, "a_1v0", b"\x08\x01\x12\x04\x08\x02\x10\x03\x18\x05")
    payload = b"\x12\x0d\x0a\x04name\x12\x05other"
    entries = [write_entry(b"\x1a", key, value) for key, value in more.items()]
    return bytes((number,)) + payload + stored + b"".join(entries)


_MORE = {
    "tidemark.ddl": '{"arrow": "", "widths": [1], "retention": [1, 2], "compaction": [1, 2]}',
    "tidemark.key": "a2V5",
    "_bh": "CAcSBWFfMXYwGgcIAhIDa2V5",
    "_ik": "1:2:key",
    "_tx": "CAEQ6Ac=",
}
SEEDS = tuple(_seed(number, kind, _MORE) for number, kind in enumerate(_KINDS))
