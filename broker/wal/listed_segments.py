"""Finds a sealed segment that a caller has listed some time ago."""

from bisect import bisect_left
from collections.abc import Sequence

from broker.model.ids import MessageId
from broker.model.retention.policy import SealedSegment
from broker.ports.wal import NotNow


def index_of(
    segment: SealedSegment, sealed: Sequence[SealedSegment], first_id: MessageId, channel: str
) -> int | None:
    """Its index among `sealed`; None: it was removed, as the log begins at `first_id`.

    Raises NotNow for a segment of another log: this one was moved since it was listed.
    """
    at = bisect_left(sealed, segment.next_id, key=lambda it: it.next_id)
    if at < len(sealed) and sealed[at].next_id == segment.next_id:
        return at
    if segment.next_id > first_id:
        why = f"no segment ends at message id {segment.next_id}, as the log was moved meanwhile"
        raise NotNow(f"{channel}: {why}")
    return None


def nothing_behind(channel: str) -> NotNow:
    """Why nothing is rewritten right after a seal: a read at any id must find a record behind."""
    return NotNow(f"{channel}: nothing was appended since the active segment was sealed")
