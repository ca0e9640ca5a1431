"""Marks of broadcasts and of committed batches in stored messages."""

from collections import Counter

from broker.model.measured import SetMark
from schemas.encoding.varint import Malformed
from schemas.properties.batch_mark import read_batch_mark
from schemas.properties.broadcast_header import read_broadcast_header
from schemas.properties.keys import BATCH, BROADCAST, BadProperty
from schemas.scan import stored_properties

_BATCH_KEY = BATCH.key.encode()


def batch_mark(commit: bytes) -> SetMark | None:
    """See `Headers.batch_mark`."""
    if _BATCH_KEY not in commit:
        return None
    try:
        text = BATCH.read(stored_properties(commit))
        mark = None if text is None else read_batch_mark(text)
    except (Malformed, BadProperty):
        return None  # not written by the coordinator
    return None if mark is None else SetMark(mark.id, mark.total, mark.counts)


def broadcast_mark(stored: bytes) -> SetMark | None:
    """The mark of a copy of a broadcast; None for any other message."""
    try:
        text = stored_properties(stored).get(BROADCAST.key)
        header = None if text is None else read_broadcast_header(text)
    except (Malformed, BadProperty):
        return None
    if header is None or not header.broadcast_id:
        return None
    return SetMark(header.broadcast_id, len(header.vchannels), Counter(header.vchannels))
