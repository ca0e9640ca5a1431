"""Messages picked out of records, as records of their own.

A record is sent whole, with the range that is meant. Of one of which a member gets every tenth
message that would be the same bytes again and again, so the messages are sent as single ones.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from broker.core.log.delivery import DeliveredItem
from broker.model.batch import Codec
from broker.model.ids import MessageId, TimeTick
from broker.model.record import Record, RecordSlice, RecordSliceInTxn
from broker.ports.headers import Headers


def picked_items(items: Iterable[DeliveredItem], headers: Headers) -> tuple[DeliveredItem, ...]:
    """The same messages, with the bytes of few others. Rows of Arrow stay in their batches."""
    found: list[DeliveredItem] = []
    for record, group in groupby(items, _plain_record):
        together = list(group)
        slices = [it for it in together if isinstance(it, RecordSlice)]
        if record is None or not _is_thin(record, slices):
            found += together
        else:
            found += _picked(record, slices, headers)
    return tuple(found)


def _plain_record(item: DeliveredItem) -> Record | None:
    if isinstance(item, RecordSlice) and not isinstance(item, RecordSliceInTxn):
        return item.record
    return None


def _is_thin(record: Record, slices: Sequence[RecordSlice]) -> bool:
    """Whether sending the record for each slice sends at least twice what is meant."""
    if record.batch is not None and record.batch.codec is Codec.ARROW:
        return False
    meant = sum([it.end - it.first for it in slices])
    return 2 * meant <= len(slices) * len(record.sizes) and len(record.sizes) > 1


def _picked(record: Record, slices: Sequence[RecordSlice], headers: Headers) -> list[RecordSlice]:
    start, end = slices[0].first, slices[-1].end
    stored = headers.stored(RecordSlice(record, start, end))
    found: list[RecordSlice] = []
    for each in slices:
        bodies = stored[each.first - start : each.end - start]
        base_id = MessageId(record.base_id + each.first)
        itself = record.last_confirmed_id == record.base_id
        picked = Record(
            term=record.term,
            base_id=base_id,
            base_tick=TimeTick(record.base_tick + each.first),
            last_confirmed_id=base_id if itself else record.last_confirmed_id,
            kind=record.kind,
            vchannel=record.vchannel,
            sizes=tuple(map(len, bodies)),
            body=b"".join(bodies),
        )
        found.append(RecordSlice(picked, 0, len(bodies)))
    return found
