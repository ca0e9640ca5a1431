"""Checks that records continue a log, before a driver stores them."""

from collections.abc import Sequence

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.record import Record

BODY_BYTES_MAX = 1 << 30


def check_append(
    records: Sequence[Record], next_id: MessageId, last_tick: TimeTick, term: Term
) -> None:
    """Raise ValueError unless ids continue at `next_id`, ticks grow and the sizes are right.

    A wrong record here is a bug of the caller. Stored, it would make the log unreadable.
    """
    for record in records:
        if record.base_id != next_id or record.base_tick <= last_tick:
            raise ValueError(
                f"record has id {record.base_id} and tick {record.base_tick}; the log continues"
                f" at id {next_id} above tick {last_tick}"
            )
        if record.term != term:
            raise ValueError(f"record of term {record.term} in a log opened at term {term}")
        _check_sizes(record)
        next_id, last_tick = record.next_id, record.last_tick


def check_copy(record: Record, next_id: MessageId, last_tick: TimeTick) -> None:
    """The same for a record of another log, before which ids may be missing."""
    if record.base_id < next_id or record.base_tick <= last_tick:
        raise ValueError(
            f"the copied record has id {record.base_id} and tick {record.base_tick}; the log is at"
            f" id {next_id} above tick {last_tick}"
        )
    _check_sizes(record)


def _check_sizes(record: Record) -> None:
    if not record.adds_up:
        raise ValueError(f"record {record.base_id}: its sizes do not add up to its body")
    if len(record.body) > BODY_BYTES_MAX:
        raise ValueError(f"record {record.base_id}: its body exceeds {BODY_BYTES_MAX} bytes")
