"""Which entries of a topic count. Pure; README.md has the argument.

An owner knows that up to `prev` no newer owner had begun when it wrote an entry. So the entries
between the two decide alone, wherever a reader begins.
"""

from collections.abc import Iterable

from broker.wal.kafka.entries import EntryHead, EntryKind


def newer_term(term: int, between: Iterable[EntryHead]) -> int:
    """The largest term above `term` of an entry there; 0: none.

    Every entry lies behind the claim of its term. So it tells of that claim, also when truncation
    has removed the claim itself.
    """
    return max((it.term for it in between if it.term > term), default=0)


def counts(head: EntryHead, between: Iterable[EntryHead]) -> bool:
    """Whether a group or state is part of the log; `between`: all entries from `prev` to it.

    Not behind a newer term: its writer was fenced. Not behind an entry of its own term that was
    written later, or is the same: it is a copy that a retry of the client left, and the first one
    counts. Copies of earlier ones do not stand in its way.
    """
    if head.kind is EntryKind.CLAIM:
        return False
    return not any(_stands_before(it, head) for it in between)


def _stands_before(earlier: EntryHead, head: EntryHead) -> bool:
    if earlier.term != head.term:
        return earlier.term > head.term
    return earlier.kind is not EntryKind.CLAIM and earlier.prev >= head.prev
