"""Opens a topic at a term: look, claim, look again, say what it holds.

The first look refuses without a trace what cannot own the topic. Only the second one, behind the
claim, decides: no older owner can add to what it finds.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from broker.model.ids import MessageId, Term, TimeTick
from broker.ports.wal import Corrupt, Fenced, NotStored, Unsuitable, WriterFailed
from broker.wal.kafka.entries import NOWHERE, Entry, EntryHead, EntryKind, damaged, encode_key
from broker.wal.kafka.kafka_writer import KafkaWriter, TopicOwner
from broker.wal.kafka.log_state import (
    PAGE_SEGMENTS,
    LogState,
    TopicSegment,
    TopicView,
    decode_state,
    empty_view,
)
from broker.wal.kafka.partition import AnswerLost, OffsetGone, Rejected, Unavailable
from broker.wal.kafka.topic_scan import TopicScan, TopicTail

T = TypeVar("T")
_LOOKS_MAX: Final = 8


def open_topic(
    scan: TopicScan,
    owner: TopicOwner,
    segment_bytes: int,
    wrote: Callable[[Entry], None],
    *,
    anew: bool = False,
) -> KafkaWriter:
    """Own the topic at a term. `anew`: as an empty log. Raises as `ports.wal.Wal.open`."""
    channel = owner.channel
    try:
        high, tail = _again(lambda: _first_look(scan, owner))
        claim = _claim(scan, owner)
        if claim < high:
            raise WriterFailed(f"{channel}: topic {scan.topic} was made anew while it was opened")
        # In most cases nobody wrote since the first look, and there is nothing to look at again.
        known = tail if claim == high else None
        low, view = _again(lambda: _second_look(scan, owner, claim, known, anew=anew))
        writer = KafkaWriter(scan, owner, claim, view, segment_bytes, wrote)
        writer.begin(low)
    except (Unavailable, OffsetGone) as failure:
        raise WriterFailed(f"{channel}: {failure}") from failure
    return writer


def _first_look(scan: TopicScan, owner: TopicOwner) -> tuple[int, TopicTail]:
    """The end of the topic, which this owner may claim, and what is there."""
    low, high = scan.partition.ends()
    tail = scan.tail(low, high)
    try:
        # Before the term: a new cluster begins at term 1, and would climb over all of the other's.
        _refuse_other_cluster(scan, owner, tail, low)
    except (Corrupt, OffsetGone, Unavailable):
        # What names the cluster cannot be read; a term that is claimed already is fenced anyway.
        _refuse_term(owner, tail)
        raise
    _refuse_term(owner, tail)
    return high, tail


def _second_look(
    scan: TopicScan, owner: TopicOwner, claim: int, known: TopicTail | None, *, anew: bool
) -> tuple[int, TopicView]:
    """The begin of the topic, and what the log holds before the claim; `anew`: nothing."""
    low, high = scan.partition.ends()
    newer = scan.newer_term(owner.term, low, high) if low > claim else 0
    if newer:
        # It has removed even the claim.
        raise Fenced(owner.channel, owner.term, newer)
    tail = known or scan.tail(low, claim)
    # The term alone: Unsuitable says that nothing was claimed.
    _refuse_term(owner, tail)
    return low, empty_view() if anew else _view(scan, tail, low)


def _again(look: Callable[[], T]) -> T:
    """Look once more where the owner of before removed what was about to be read."""
    for _ in range(_LOOKS_MAX - 1):
        try:
            return look()
        except OffsetGone:
            continue
    return look()


def _claim(scan: TopicScan, owner: TopicOwner) -> int:
    head, cluster = EntryHead(EntryKind.CLAIM, owner.term, NOWHERE), owner.cluster.encode()
    try:
        return scan.partition.append(encode_key(head, cluster), cluster, 0)
    except Rejected as refusal:
        raise NotStored(f"{owner.channel}: {refusal}") from refusal
    except AnswerLost as failure:
        raise WriterFailed(f"{owner.channel}: {failure}") from failure


def _refuse_term(owner: TopicOwner, tail: TopicTail) -> None:
    if tail.term >= owner.term:
        raise Fenced(owner.channel, owner.term, tail.term)


def _refuse_other_cluster(scan: TopicScan, owner: TopicOwner, tail: TopicTail, low: int) -> None:
    """Two clusters on one prefix would take the topics from each other."""
    found = [
        it.value.decode(errors="replace") for it in tail.behind if it.head.kind is EntryKind.CLAIM
    ]
    if tail.newest is not None:
        found.append(_state(scan, _state_entry(scan, tail.newest, low)).cluster)
    for cluster in found:
        if cluster != owner.cluster:
            raise Unsuitable(
                f"topic {scan.topic} belongs to cluster {cluster!r}, and this is cluster"
                f" {owner.cluster!r}; give each cluster a prefix of its own"
            )


def _view(scan: TopicScan, tail: TopicTail, low: int) -> TopicView:
    """What the topic holds up to the newest entry that counts."""
    newest = tail.newest
    if newest is None:
        if low:
            reason = "records were removed, and none is left that says what the log held"
            raise damaged(scan.topic, low, reason)
        return empty_view()
    view = _view_of(scan, _state_entry(scan, newest, low), low)
    if newest.head.kind is EntryKind.GROUP:
        view = _grown(view, newest)
    if low > view.needed_from:
        view = _left_of(scan, view, low)
    return view


def _state_entry(scan: TopicScan, newest: Entry, low: int) -> Entry:
    """The state that an entry continues: itself, or one before it."""
    if newest.head.kind is EntryKind.STATE:
        return newest
    offset = newest.head.state
    if offset < low:
        raise damaged(scan.topic, offset, f"offsets below {low} were removed, not by Tidemark")
    found = next(iter(scan.entries(offset, offset + 1)), None)
    if found is None or found.head.kind is not EntryKind.STATE:
        raise damaged(scan.topic, offset, "there is no state where a group says that one is")
    return found


def _state(scan: TopicScan, entry: Entry) -> LogState:
    return decode_state(entry.value, scan.topic, entry.offset)


def _view_of(scan: TopicScan, entry: Entry, low: int) -> TopicView:
    """The view that a state tells, with the segments of all earlier ones."""
    state = _state(scan, entry)
    behind = entry.offset + 1
    active = TopicSegment(state.next_id, state.next_id, behind, behind, state.last_tick, 0)
    sealed = _earlier_segments(scan, state, low) + state.page
    page_from = len(sealed) - len(state.page)
    earlier = state.earlier if page_from else NOWHERE
    if len(state.page) >= PAGE_SEGMENTS:
        page_from, earlier = len(sealed), entry.offset
    return TopicView(
        state.first_id, state.removed_tick, state.last_term, sealed, active, TimeTick(0),
        entry.offset, page_from, earlier,
    )  # fmt: skip


def _earlier_segments(scan: TopicScan, state: LogState, low: int) -> tuple[TopicSegment, ...]:
    """Those of the pages before this one, oldest first."""
    found: tuple[TopicSegment, ...] = ()
    page, offset = state.page, state.earlier
    while offset != NOWHERE and page and page[0].base_id > state.first_id and offset >= low:
        entry = next(iter(scan.entries(offset, offset + 1)), None)
        if entry is None or entry.head.kind is not EntryKind.STATE:
            raise damaged(scan.topic, offset, "there is no state where a later one says it is")
        before = _state(scan, entry)
        if before.earlier >= offset:
            raise damaged(scan.topic, offset, "the states lead in a circle")
        page, offset = before.page, before.earlier
        found = tuple(it for it in page if it.next_id > state.first_id) + found
    return found


def _grown(view: TopicView, newest: Entry) -> TopicView:
    head = newest.head
    active = view.active._replace(
        next_id=MessageId(head.next_id), end_offset=newest.offset + 1,
        last_tick=TimeTick(head.last_tick), size_bytes=head.active_bytes,
    )  # fmt: skip
    tick, term = TimeTick(head.active_tick), Term(head.term)
    return replace(view, active=active, active_tick=tick, last_term=term)


def _left_of(scan: TopicScan, view: TopicView, low: int) -> TopicView:
    """The view without the segments of which somebody else removed records; told first."""
    reason = (
        f"offsets {view.needed_from} to {low - 1} were removed, not by Tidemark: by the topic's"
        " own retention, or by hand"
    )
    scan.on_damage(damaged(scan.topic, view.needed_from, reason))
    return view.without(sum(1 for it in view.sealed if it.base_offset - 1 < low))
