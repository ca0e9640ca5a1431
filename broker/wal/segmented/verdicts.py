"""What a segment keeps of each record when it is written anew."""

from collections.abc import Callable, Sequence

from broker.core.space.dead_records import is_dead, only_closes
from broker.core.space.record_runs import is_divisible
from broker.model.ids import MessageId
from broker.model.record import Record
from broker.model.retention.dead import Dead
from broker.ports.wal import Judge
from broker.wal.segmented.formats.thinned_format import encode_thinned, span_of
from broker.wal.segmented.record_format import Stored
from broker.wal.segmented.scan import Records

Verdict = Callable[[Record, bool, MessageId], Sequence[Record] | None]
"""Of a record, whether nothing is left of the one before it, and the first id of the segment: as a
Judge."""


def without(dead: Dead) -> Verdict:
    """Nothing of what is dead."""

    def verdict(record: Record, behind_dead: bool, segment_id: MessageId) -> tuple[()] | None:
        gone = is_dead(record, dead, behind_dead=behind_dead, segment_id=segment_id)
        return () if gone else None

    return verdict


def left_by(judge: Judge) -> Verdict:
    """What a judge leaves; of closed ticks behind a gap nothing."""

    def verdict(record: Record, behind_dead: bool, _: MessageId) -> Sequence[Record] | None:
        return () if behind_dead and only_closes(record) else judge(record)

    return verdict


def left_of(
    entry: Records, verdict: Verdict, at: tuple[bool, MessageId]
) -> tuple[Record, ...] | None:
    """What is left of a record or a thinned one; None: all of it. `at` as in Verdict."""
    runs: list[Record] = []
    changed = False
    for record in entry.records:
        left = verdict(record, *at)
        changed = changed or left is not None
        runs += (record,) if left is None else left
    return tuple(runs) if changed else None


def thinned(entry: Records, runs: Sequence[Record], salt: int) -> bytes | None:
    """The stored form of what is left; None where that is not worth it.

    A compressed body is stored uncompressed then, which may need more space than all of it.
    """
    span = span_of(entry.record) if isinstance(entry, Stored) else entry.span
    made = encode_thinned(runs, span, entry.group_id, salt)
    grown = len(made) >= entry.end - entry.offset
    return None if grown and not all(map(is_divisible, entry.records)) else made
