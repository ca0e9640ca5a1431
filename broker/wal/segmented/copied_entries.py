"""What a copy of a log stores: its records as they are, and gaps where ids are missing."""

from collections.abc import Sequence

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.record import Record
from broker.wal.append_check import check_copy
from broker.wal.segmented.formats.gap_format import Gap, encode_gap
from broker.wal.segmented.record_format import encode

CopiedEntry = Record | Gap


def copied_entries(
    records: Sequence[Record],
    after: tuple[MessageId, TimeTick, Term],
    until: tuple[MessageId, TimeTick],
) -> list[CopiedEntry]:
    """The records, with gaps from `after` (next id, last tick, last term) on, and up to `until`.

    Raises ValueError, as for an append.
    """
    next_id, last_tick, last_term = after
    found: list[CopiedEntry] = []
    for record in records:
        check_copy(record, next_id, last_tick)
        if record.base_id > next_id:
            before = TimeTick(record.base_tick - 1)
            found.append(_gap(last_term, next_id, record.base_id, last_tick, before))
        found.append(record)
        next_id, last_tick, last_term = record.next_id, record.last_tick, record.term
    if until[0] > next_id:
        found.append(_gap(last_term, next_id, until[0], last_tick, until[1]))
    return found


def encode_copies(entries: Sequence[CopiedEntry], group_id: int, salt: int) -> list[bytes]:
    """The same for the entries of a copy."""
    parts = list[bytes]()
    for entry in entries:
        if isinstance(entry, Gap):
            parts += (b"".join(encode_gap(entry, salt)), b"")
        else:
            parts += encode(entry, group_id, salt)
    return parts


def _gap(
    term: Term, base_id: MessageId, next_id: MessageId, before: TimeTick, last: TimeTick
) -> Gap:
    # Where ticks leave no room for the ids, the last one is all that readers go by.
    return Gap(0, 0, term, base_id, next_id, TimeTick(min(before + 1, last)), last)
