"""What the log says of one group: what is acknowledged, tried, and given up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.core.groups.tick_spans import TickSpans
from broker.core.groups.tried_counts import TriedCounts
from broker.model.groups.consumer_group import (
    DeliveryLimit,
    DyingSpans,
    GroupSnapshot,
    TickSpan,
)
from broker.model.ids import TimeTick, TxnId


@dataclass(frozen=True, slots=True)
class HeldAck:
    """What an open transaction acknowledges, by the record at `tick`.

    `times`: how often the messages were delivered.
    """

    txn: TxnId
    spans: tuple[TickSpan, ...]
    times: int
    tick: TimeTick


class GroupState:
    """One group: everything up to `floor` is acknowledged, and `acked` above it.

    `tried` and `dying` hold nothing that is acknowledged, and nothing is in both. `held`: by open
    transactions; neither acknowledged nor delivered.
    """

    __slots__ = (
        *("acked", "created_tick", "dying", "floor", "held", "key", "lease_ms", "limit", "mode"),
        *("since_tick", "tick", "tried"),
    )

    def __init__(self, saved: GroupSnapshot) -> None:
        self.key = saved.key
        self.lease_ms = saved.lease_ms
        self.limit = saved.limit
        self.mode = saved.mode
        self.floor = saved.floor
        self.acked = TickSpans(saved.acked)
        self.tried = TriedCounts(saved.tried)
        self.dying = list(saved.dying)
        self.created_tick = saved.created_tick
        self.tick = saved.tick
        self.since_tick = saved.tick
        """Acknowledgements up to it are included, or the group was set to another place since."""
        self.held: list[HeldAck] = []

    def acknowledge(self, spans: Sequence[TickSpan]) -> None:
        """Take these as acknowledged; again or not."""
        for span in spans:
            self.acked.add(TickSpan(max(span.after, self.floor), span.upto))
        self.floor = self.acked.raised(self.floor)
        if self.tried or self.dying:
            for span in spans:
                self.tried.remove(span)
            self.dying = _without(self.dying, spans)

    def try_again(self, spans: Iterable[TickSpan], times: int) -> None:
        """These are delivered for the `times`-th time, unless they are acknowledged or die."""
        for part in self._left(spans):
            self.tried.put(part, times)

    def give_up(self, spans: Iterable[TickSpan], cause: str, times: int, tick: TimeTick) -> None:
        """These go to the dead letters, unless they are acknowledged, or go there already."""
        parts = self._left(spans)
        for part in parts:
            self.tried.remove(part)
        if parts:
            self.dying.append(DyingSpans(tuple(parts), cause, times, tick))

    def alter(self, lease_ms: int, limit: DeliveryLimit | None) -> None:
        """Without a limit nothing dies: what was about to is delivered again.

        With a smaller one nothing dies at once: messages were counted with their neighbours, so
        each has a last delivery, on its own, before it may.
        """
        self.lease_ms, self.limit = lease_ms, limit
        if limit is None:
            self.tried, self.dying = TriedCounts(), []
        else:
            self.tried.cap(limit.deliveries_max - 1)

    def seek(self, floor: TimeTick, tick: TimeTick) -> None:
        """Forget what is acknowledged above `floor`, and that anything below it is not."""
        self.floor, self.acked, self.since_tick = floor, TickSpans(), tick
        self.tried, self.dying = TriedCounts(), []

    def has_free(self, spans: Iterable[TickSpan]) -> bool:
        """Whether nothing of these is acknowledged, or held by a transaction."""
        held = self.held_spans
        return all(
            it.after >= self.floor and not self.acked.within(it) and not held.within(it)
            for it in spans
        )

    @property
    def has_exceeded(self) -> bool:
        """Whether messages had all their deliveries, and are not known to die yet."""
        most = self.limit.deliveries_max if self.limit is not None else None
        return most is not None and any(it.times > most for it in self.tried)

    @property
    def end(self) -> TimeTick:
        """The last tick that is acknowledged above the floor, or held; 0 without any."""
        return max([self.acked.end, *[span.upto for it in self.held for span in it.spans]])

    @property
    def held_spans(self) -> TickSpans:
        """What open transactions hold."""
        return TickSpans([span for it in self.held for span in it.spans])

    @property
    def dying_spans(self) -> TickSpans:
        """What goes to the dead letters."""
        return TickSpans([span for it in self.dying for span in it.spans])

    @property
    def held_count(self) -> int:
        """The number of spans that open transactions hold."""
        return sum([len(it.spans) for it in self.held])

    def snapshot(self) -> GroupSnapshot:
        """The state as a value."""
        return GroupSnapshot(
            self.key,
            self.lease_ms,
            self.floor,
            tuple(self.acked),
            self.created_tick,
            self.tick,
            self.limit,
            tuple(self.tried),
            tuple(self.dying),
            self.mode,
        )

    def _left(self, spans: Iterable[TickSpan]) -> TickSpans:
        """What of the spans is not acknowledged, and does not die."""
        left = TickSpans()
        for span in spans:
            for part in self.acked.missing(TickSpan(max(span.after, self.floor), span.upto)):
                left.add(part)
        for each in self.dying:
            for span in each.spans:
                left.remove(span)
        return left


def _without(dying: Iterable[DyingSpans], spans: Iterable[TickSpan]) -> list[DyingSpans]:
    left: list[DyingSpans] = []
    for each in dying:
        rest = TickSpans(each.spans)
        for span in spans:
            rest.remove(span)
        if rest:
            left.append(DyingSpans(tuple(rest), each.cause, each.times, each.since))
    return left
