"""How much lies on channels in a span of ticks: walks over heads, one for each pchannel.

Owns what one call may cost. A walk that is not done by then says how far it has come.
Next: broker/core/time/span_count.py
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.lowlevel

from broker.core.naming import pchannel_of
from broker.core.time.span_count import Enough, Grain, SpanCount
from broker.edge.cutting import CHANNELS_MAX, close_up_to
from broker.model.failure import invalid_argument
from broker.model.ids import BroadcastId, MessageId, PChannelName, TimeTick, TxnId
from broker.model.measured import BroadcastCopy, MeasuredChannel, RecordHead
from broker.node.state.messages import Located
from schemas.encoding.varint import Malformed
from schemas.properties.batch_mark import read_batch_mark
from schemas.properties.broadcast_header import read_broadcast_header
from schemas.properties.keys import BATCH, BROADCAST, BadProperty
from schemas.scan import stored_properties

MEASURE_S: Final = 4.0
"""For the walks of one call together; what is measured by then is the answer."""
HEADS_MAX: Final = 262_144
"""Records that one call looks at, and before which a long transaction is not looked for."""
STEPS_MAX: Final = 32_768
COPIES_MAX: Final = 65_536
STEPS_OF_ONE_MIN, STEPS_OF_ONE_MAX = 8, 4096
ROWS_UNLIMITED: Final = 1 << 40
MARK: Final = BROADCAST.key.encode()
BATCH_MARK: Final = BATCH.key.encode()


@dataclass(frozen=True, slots=True)
class Question:
    """What is measured; see MeasureRequest. `afters` has one tick for each channel.

    `step`: its rows and bytes, 0 for any number.
    """

    channels: Sequence[str]
    afters: Sequence[TimeTick]
    until: TimeTick
    enough: Enough
    step: tuple[int, int]
    together: Collection[str]


@dataclass(slots=True)
class Answer:
    """What was found until now."""

    channels: dict[str, MeasuredChannel] = field(default_factory=dict)
    copies: list[BroadcastCopy] = field(default_factory=list)


async def measure(
    locate: Callable[[PChannelName], Awaitable[Located]], question: Question
) -> Answer:
    """The answer. Raises Refused: INVALID_ARGUMENT (no channel, too many, no span, a tick from the
    future), what `locate` raises, and what the log does when it cannot be read."""
    walks = _walks(question)
    places = [(await locate(name), name, *walk) for name, walk in walks.items()]
    for place, *_ in places:
        await close_up_to(place, question.until)
    answer = Answer()
    together = frozenset(question.together) or frozenset(question.channels)
    deadline_s = anyio.current_time() + MEASURE_S
    steps_max = STEPS_MAX // len(question.channels)
    grain = Grain(
        question.step[0] or ROWS_UNLIMITED,
        question.step[1],
        max(STEPS_OF_ONE_MIN, min(STEPS_OF_ONE_MAX, steps_max)),
    )
    for place, name, after, channels in places:
        span = (after, question.until)
        measuring = SpanCount(channels, span, grain, question.enough, name)
        walk = _Walk(place, measuring, span, together)
        walk.copies_max = COPIES_MAX // len(places)
        await walk.run(HEADS_MAX // len(places), deadline_s)
        answer.channels |= measuring.channels()
        answer.copies += walk.copies
    return answer


def _walks(question: Question) -> Mapping[PChannelName, tuple[TimeTick, list[str]]]:
    """The channels of each pchannel, and after which tick they are measured."""
    count = len(question.channels)
    if not 0 < count <= CHANNELS_MAX:
        raise invalid_argument(f"{count} channels; a measure needs 1 to {CHANNELS_MAX}")
    if len(set(question.channels)) != count or not all(question.channels):
        raise invalid_argument("each channel is measured once, under its name")
    if len(question.afters) != count:
        raise invalid_argument(f"{len(question.afters)} ticks for {count} channels")
    walks: dict[PChannelName, tuple[TimeTick, list[str]]] = {}
    for channel, after in zip(question.channels, question.afters, strict=True):
        if not 0 <= after < question.until:
            raise invalid_argument(f"no tick lies in the span ({after}, {question.until}]")
        known, channels = walks.setdefault(pchannel_of(channel), (after, []))
        if known != after:
            raise invalid_argument(f"channels of one pchannel have ticks {known} and {after}")
        channels.append(channel)
    return walks


class _Walk:
    """Over one pchannel, as far as the span goes and the budget lasts."""

    def __init__(
        self,
        place: Located,
        measuring: SpanCount,
        span: tuple[TimeTick, TimeTick],
        together: frozenset[str],
    ) -> None:
        self.copies: list[BroadcastCopy] = []
        self.copies_max = COPIES_MAX
        self._view = place.view
        self._measuring = measuring
        self._after, self._until = span
        self._together = together

    async def run(self, heads_max: int, deadline_s: float) -> None:
        """At least one record of the span is looked at, so that whoever asks again gets on."""
        next_id = await self._start(heads_max)
        left = heads_max
        while True:
            heads = await self._view.heads(next_id)
            if not heads:
                self._measuring.finish()
                return
            for head in heads:
                if head.next_id <= next_id:
                    continue
                if not self._measuring.take(head):
                    self._look(head)
                    return
                self._look(head)
                left -= head.last_tick > self._after
            next_id = heads[-1].next_id
            spent = left <= 0 or anyio.current_time() > deadline_s
            if (spent and self._measuring.exact > self._after) or self._is_full:
                return
            await anyio.lowlevel.checkpoint()

    @property
    def _is_full(self) -> bool:
        return len(self.copies) >= self.copies_max

    async def _start(self, heads_max: int) -> MessageId:
        """The first record of the span, or where the transactions open there begin, if near."""
        first_id = await self._view.seek(TimeTick(self._after + 1))
        heads = await self._view.heads(first_id)
        if not heads:
            return first_id
        confirmed_id = min(heads[0].last_confirmed_id, first_id)
        return MessageId(max(confirmed_id, first_id - heads_max, self._view.offsets().first_id))

    def _look(self, head: RecordHead) -> None:
        """Note the copies of broadcasts, or a commit of a batch."""
        if not (head.body and self._measuring.wants(head.vchannel)):
            return
        if head.txn is None:
            self._look_at_messages(head)
        elif self._is_in_span(head.base_tick):
            self._look_at_commit(head, head.txn.id)

    def _is_in_span(self, tick: TimeTick) -> bool:
        return self._after < tick <= self._until

    def _look_at_messages(self, head: RecordHead) -> None:
        """Copies of broadcasts that came to a vchannel at the same time lie in one record."""
        if MARK not in head.body:
            return
        start = 0
        for index, size in enumerate(head.sizes):
            body = head.body[start : start + size]
            start += size
            tick = TimeTick(head.base_tick + index)
            if MARK in body and self._is_in_span(tick):
                self._look_at_message(head.vchannel, tick, body)

    def _look_at_commit(self, head: RecordHead, txn_id: TxnId) -> None:
        if BATCH_MARK not in head.body:
            return
        try:
            text = BATCH.read(stored_properties(head.body))
            mark = None if text is None else read_batch_mark(text)
        except (Malformed, BadProperty):
            return  # it was not the coordinator who wrote it
        if mark is not None:
            counts = [count for it, count in mark.counts.items() if self._is_together(it)]
            of = sum(counts) if mark.counts else mark.total
            place = f"{head.vchannel}/{txn_id}"
            self.copies.append(BroadcastCopy(BroadcastId(-1 - mark.id), place, head.base_tick, of))

    def _look_at_message(self, vchannel: str, tick: TimeTick, body: bytes) -> None:
        try:
            text = stored_properties(body).get(BROADCAST.key)
            header = None if text is None else read_broadcast_header(text)
        except (Malformed, BadProperty):
            return  # no reader sees a broadcast in it either
        if header is not None and header.broadcast_id:
            of = sum([self._is_together(it) for it in header.vchannels])
            broadcast_id = BroadcastId(header.broadcast_id)
            self.copies.append(BroadcastCopy(broadcast_id, vchannel, tick, of))

    def _is_together(self, vchannel: str) -> bool:
        return vchannel in self._together or pchannel_of(vchannel) in self._together
