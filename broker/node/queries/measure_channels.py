"""Count what lies on channels in a span of ticks: one walk over record heads for each pchannel.

Bodies are never read, except where a record may hold the copy of a broadcast, the commit of a batch
or a change of definitions. One call has a budget of time and records; a walk that exceeds it ends
early, and its answer says up to which tick it is exact.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.lowlevel

from broker.core.naming import is_control_channel, pchannel_of
from broker.core.time.span_count import SpanCount, SpanLimit, StepSize
from broker.model.failure import invalid_argument
from broker.model.ids import BroadcastId, MessageId, PChannelName, TimeTick
from broker.model.measured import AtomicMember, MeasuredChannel, RecordHead, SetMark
from broker.model.message import EXCLUSIVE_TYPES
from broker.node.directory_messages import ChannelView, Located
from broker.node.queries.cut_channels import CHANNELS_MAX, CUT_S, LocateChannel, close_up_to
from broker.ports.headers import Headers

MEASURE_S: Final = 4.0
"""For all walks of one call; the answer is what they have counted by then."""
HEADS_MAX: Final = 262_144
"""Records that one call looks at; also how far before the span it looks for the begin of a
transaction."""
STEPS_MAX: Final = 32_768
COPIES_MAX: Final = 65_536
STEPS_OF_ONE_MIN, STEPS_OF_ONE_MAX = 8, 4096
ROWS_UNLIMITED: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Question:
    """What to measure.

    `afters` has one tick for each channel: its span is (after, until]. `step`: the rows and bytes
    of one step of the answer, 0 for no limit. `together`: the channels on which copies of a
    broadcast and commits of a batch are counted; empty for `channels`.
    """

    channels: Sequence[str]
    afters: Sequence[TimeTick]
    until: TimeTick
    enough: SpanLimit
    step: tuple[int, int]
    together: Collection[str]


@dataclass(slots=True)
class Answer:
    """What the walks have counted so far."""

    channels: dict[str, MeasuredChannel] = field(default_factory=dict)
    copies: list[AtomicMember] = field(default_factory=list)


async def measure_channels(locate: LocateChannel, headers: Headers, question: Question) -> Answer:
    """Count until the span, the budget or what is `enough` is reached.

    Raises Refused: INVALID_ARGUMENT (no channel, too many, an empty span, a tick from the future),
    whatever `locate` raises, and the refusal of a log that cannot be read.
    """
    walks = _walks(question)
    places = [(await locate(name), name, *walk) for name, walk in walks.items()]
    closed_by_s = anyio.current_time() + CUT_S
    for place, *_ in places:
        await close_up_to(place, question.until, max(0.0, closed_by_s - anyio.current_time()))
    answer = Answer()
    together = frozenset(question.together) or frozenset(question.channels)
    deadline_s = anyio.current_time() + MEASURE_S
    steps_max = STEPS_MAX // len(question.channels)
    grain = StepSize(
        question.step[0] or ROWS_UNLIMITED,
        question.step[1],
        max(STEPS_OF_ONE_MIN, min(STEPS_OF_ONE_MAX, steps_max)),
    )
    for place, name, after, channels in places:
        span = (after, question.until)
        measuring = SpanCount(channels, span, grain, question.enough, name, place.view.purged())
        walk = _Walk(place, measuring, headers, together)
        walk.copies_max = COPIES_MAX // len(places)
        await walk.run(HEADS_MAX // len(places), deadline_s)
        answer.channels |= measuring.channels()
        answer.copies += walk.copies
    return answer


def _walks(question: Question) -> Mapping[PChannelName, tuple[TimeTick, list[str]]]:
    """The channels of each pchannel, and after which tick they are measured."""
    count = len(question.channels)
    if not 0 < count <= CHANNELS_MAX:
        raise invalid_argument(
            f"a measure names 1 to {CHANNELS_MAX} channels, this one names {count}"
        )
    if len(set(question.channels)) != count or not all(question.channels):
        raise invalid_argument("a channel is named twice or its name is empty; name each once")
    if len(question.afters) != count:
        raise invalid_argument(
            f"after_ticks has {len(question.afters)} ticks for {count} channels;"
            " give one for each, or one for all"
        )
    walks: dict[PChannelName, tuple[TimeTick, list[str]]] = {}
    for channel, after in zip(question.channels, question.afters, strict=True):
        if not 0 <= after < question.until:
            raise invalid_argument(
                f"the span of ticks ({after}, {question.until}] is empty;"
                " its begin must be 0 or more, and below its end"
            )
        known, channels = walks.setdefault(pchannel_of(channel), (after, []))
        if known != after:
            raise invalid_argument(
                f"channels of pchannel {pchannel_of(channel)} start after different ticks,"
                f" {known} and {after}; give channels of one pchannel the same tick"
            )
        channels.append(channel)
    return walks


class _Walk:
    """Over one pchannel, as far as the span and the budget reach."""

    def __init__(
        self, place: Located, measuring: SpanCount, headers: Headers, together: frozenset[str]
    ) -> None:
        self.copies: list[AtomicMember] = []
        self.copies_max = COPIES_MAX
        self._view = place.view
        self._measuring = measuring
        self._after, self._until = measuring.span
        self._headers = headers
        self._together = together

    async def run(self, heads_max: int, deadline_s: float) -> None:
        """Count at least one record of the span, so that repeated calls make progress."""
        next_id = await first_of_span(self._view, self._after, heads_max)
        left = heads_max
        while True:
            heads = await self._view.heads(next_id)
            if not heads:
                self._measuring.finish()
                return
            for head in heads:
                if head.next_id <= next_id:
                    continue
                hidden = self._measuring.wants(head.vchannel) and is_hidden(self._headers, head)
                goes_on = self._measuring.take(head, hidden=hidden)
                if not hidden:
                    self._note_sets(head)
                if not goes_on:
                    return
                # Records before the span are free: `_start` has limited how many there are.
                left -= head.last_tick > self._after
            next_id = heads[-1].next_id
            # Over the budget, but not before one tick of the span is counted: a caller that
            # continues from there must advance.
            spent = left <= 0 or anyio.current_time() > deadline_s
            if (spent and self._measuring.exact > self._after) or self._is_full:
                return
            # Heads in the tail come without a wait, so nothing else here lets others run.
            await anyio.lowlevel.checkpoint()

    @property
    def _is_full(self) -> bool:
        return len(self.copies) >= self.copies_max

    def _note_sets(self, head: RecordHead) -> None:
        """Note copies of broadcasts, or the commit of a batch: a choice must not part them."""
        if not (head.body and self._measuring.wants(head.vchannel)):
            return
        if head.txn is None:
            for index, mark in self._headers.broadcast_marks(head.body, head.sizes):
                self._note(mark.id, mark, head.vchannel, TimeTick(head.base_tick + index))
        elif self._is_in_span(head.base_tick):
            batch = self._headers.batch_mark(head.body)
            if batch is not None:
                place = f"{head.vchannel}/{head.txn.id}"
                # Negative: ids of batches and of broadcasts are numbered apart and must not meet.
                self._note(-1 - batch.id, batch, place, head.base_tick)

    def _is_in_span(self, tick: TimeTick) -> bool:
        return self._after < tick <= self._until

    def _note(self, number: int, mark: SetMark, place: str, tick: TimeTick) -> None:
        if self._is_in_span(tick):
            counts = [count for it, count in mark.counts.items() if self._is_together(it)]
            of = sum(counts) if mark.counts else mark.total
            self.copies.append(AtomicMember(BroadcastId(number), place, tick, of))

    def _is_together(self, vchannel: str) -> bool:
        return vchannel in self._together or pchannel_of(vchannel) in self._together


async def first_of_span(view: ChannelView, after: TimeTick, ids_max: int) -> MessageId:
    """The first record above `after`, or where the transactions open there begin, if near.

    Raises Refused.
    """
    first_id = await view.seek(TimeTick(after + 1))
    heads = await view.heads(first_id)
    if not heads:
        return first_id
    confirmed_id = min(heads[0].last_confirmed_id, first_id)
    return MessageId(max(confirmed_id, first_id - ids_max, view.offsets().first_id))


def is_hidden(headers: Headers, head: RecordHead) -> bool:
    """Whether it informs the log of a change: readers do not get it, so it is no row."""
    if head.kind not in EXCLUSIVE_TYPES or is_control_channel(head.vchannel):
        return False
    return headers.announced(head.body)
