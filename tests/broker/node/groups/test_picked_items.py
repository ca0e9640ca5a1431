"""Messages picked out of records are the same messages, and little else is sent."""

from broker.codec.stored_headers import StoredHeaders
from broker.codec.stored_messages import stored_of
from broker.core.log.delivery import DeliveredItem
from broker.model.batch import BatchKeys, BatchPart, Codec
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import ClosedTick
from broker.model.record import Record, RecordSlice, RecordSliceInTxn
from broker.node.groups.leasing.picked_items import picked_items

V = "by-dev-rootcoord-dml_0_7v0"
HEADERS = StoredHeaders()


def record(base: int = 9, confirmed: int = 9, codec: Codec = Codec.NONE) -> Record:
    bodies = [b"%d" % at for at in range(10)]
    part = BatchPart(b"", codec, BatchKeys((2,) * 10, b"k" * 10))
    ids = MessageId(base), TimeTick(10 * base), MessageId(confirmed)
    sizes = tuple(map(len, bodies))
    return Record(Term(1), *ids, 2, V, sizes, b"".join(bodies), batch=part)


def slices(whole: Record, *spans: tuple[int, int]) -> list[RecordSlice]:
    return [RecordSlice(whole, first, end) for first, end in spans]


def told(parts: object) -> list[tuple[int, int, bytes, int]]:
    assert isinstance(parts, list | tuple)
    return [
        (it.record.base_id + at, it.record.base_tick + at, body, it.record.last_confirmed_of(at))
        for it in parts
        for at, body in enumerate(stored_of(it), it.first)
    ]


def test_few_messages_of_a_record_are_records_of_their_own() -> None:
    for whole in (record(), record(confirmed=3)):
        wanted = slices(whole, (1, 2), (4, 6), (9, 10))
        picked = picked_items(wanted, HEADERS)
        assert told(picked) == told(wanted)
        assert all(isinstance(it, RecordSlice) and it.record.batch is None for it in picked)
        assert sum([len(it.record.sizes) for it in picked if isinstance(it, RecordSlice)]) == 4


def test_what_is_most_of_a_record_and_rows_and_transactions_stay_as_they_are() -> None:
    closed = ClosedTick(TimeTick(1), MessageId(1), MessageId(1), Term(1), False)
    rows = record(codec=Codec.ARROW)
    in_txn = RecordSliceInTxn(record(), 0, 1, TimeTick(500), MessageId(50))
    items: list[DeliveredItem] = [
        closed,
        *slices(record(20), (1, 10)),
        *slices(rows, (1, 2), (4, 5)),
        in_txn,
    ]
    assert list(picked_items(items, HEADERS)) == items
