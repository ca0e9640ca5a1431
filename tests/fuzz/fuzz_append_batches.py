"""Batches of the native protocol: the scanner of the Append stream, and the checks behind it."""

from broker.codec.stored_headers import StoredHeaders
from broker.core.segments.segment_assigner import ROW_TYPES
from broker.edge.tidemark.admission.batch_admission import BatchAdmission, packing_fault
from broker.model.batch import Codec, NewBatch
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.record import Record, RecordSlice
from broker.ports.headers import BadHeader
from schemas.batches import ScannedBatch, append_request, scan_append_request, shared_properties
from schemas.encoding.varint import Malformed
from schemas.packing import LZ4, ZSTD, pack

PCHANNEL = PChannelName("by-dev-rootcoord-dml_0")
_BYTES_MAX = 1 << 20
_HEADERS = StoredHeaders()


def check(data: bytes) -> None:
    """Malformed, refused, or a batch that every reader can take apart message by message."""
    try:
        scanned = scan_append_request(data)
    except Malformed:
        return
    admission = BatchAdmission(PCHANNEL, _BYTES_MAX)
    # Bodies of rows are checked elsewhere: see `fuzz_arrow_bodies`.
    rows = scanned.codec == Codec.ARROW
    batch = admission.refusal(scanned) if rows else admission.judge(scanned)
    if isinstance(batch, NewBatch):
        packed = scanned.codec != Codec.NONE
        if not packed or not packing_fault(scanned):
            _read(batch)


def _read(batch: NewBatch) -> None:
    assert batch.size <= _BYTES_MAX + 256 * 1024
    record = Record(
        Term(1),
        MessageId(1),
        TimeTick(100),
        MessageId(1),
        batch.type,
        batch.vchannel,
        batch.sizes,
        batch.body,
        None,
        batch.part,
    )
    whole = RecordSlice(record, 0, len(record.sizes))
    assert len(_HEADERS.stored(whole)) == len(_HEADERS.keys(whole)) == len(record.sizes)
    if batch.type in ROW_TYPES:
        try:
            _HEADERS.batch_effect(batch.type, batch.part.properties)
        except BadHeader:
            pass
    _HEADERS.letters([whole])


_PLAIN = ScannedBatch(vchannel=f"{PCHANNEL}_1v0", sizes=(1, 2), type=2)
_PROPERTIES = shared_properties({"color": "red", "_h": "CAESBAgCEAE=", "_v": "1"}.items())
_OWN = shared_properties({"own": "1"}.items())
_ZEROS = bytes(1000)
SEEDS = (
    append_request(_PLAIN, [b"abc"]),
    append_request(_PLAIN._replace(properties=_PROPERTIES, key_sizes=(2, 0), keys=b"k"), [b"abc"]),
    append_request(_PLAIN._replace(own_sizes=(len(_OWN), 0), own=_OWN), [b"abc"]),
    append_request(_PLAIN._replace(sizes=(1000,), codec=LZ4), [pack(LZ4, _ZEROS)]),
    append_request(_PLAIN._replace(sizes=(1000,), codec=ZSTD), [pack(ZSTD, _ZEROS)]),
    append_request(_PLAIN._replace(type=3, producer="me", sequence=7, durability=1), [b"abc"]),
)
