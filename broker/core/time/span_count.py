"""Counts the messages of some channels in a span of ticks, from record heads alone.

One pass in log order. The bodies of a transaction count at the tick of its commit, and not at all
if it is rolled back. What the log writes itself does not count: no reader gets it unless it names
its types. Repeated copies of a broadcast count too, although readers skip them, so the row count is
an upper bound there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.model.ids import TimeTick, TxnId
from broker.model.measured import MeasuredChannel, RecordHead, SpanStep
from broker.model.message import (
    BODY_TYPES,
    SELF_CONTROLLED_TYPES,
    SYSTEM_TYPES,
    MessageType,
)
from broker.model.retention.dead import PURGED_KINDS
from broker.model.txn import TxnPart

NOT_COUNTED = SYSTEM_TYPES | SELF_CONTROLLED_TYPES

NOTHING_PURGED: Final[Mapping[str, TimeTick]] = {}


@dataclass(frozen=True, slots=True)
class StepSize:
    """A step ends at so many rows or bytes (0 bytes: no limit). When a channel would have more than
    `steps_max` steps, neighbours are merged in pairs."""

    rows: int
    bytes: int = 0
    steps_max: int = 1024


@dataclass(frozen=True, slots=True)
class SpanLimit:
    """Counting stops after the record that exceeds so many rows or bytes; 0: no limit."""

    rows: int = 0
    bytes: int = 0


class SpanCount:
    """Counts for some channels of one pchannel; the pchannel itself may be one, counted as a whole.

    Takes record heads in log order, starting where the transactions begin that are open at the
    start of the span, if that is near. `take` says when to stop.
    """

    def __init__(
        self,
        channels: Sequence[str],
        span: tuple[TimeTick, TimeTick],
        grain: StepSize,
        enough: SpanLimit,
        whole: str = "",
        purged: Mapping[str, TimeTick] = NOTHING_PURGED,
    ) -> None:
        """`span`: ticks in (after, until]. `whole`: the name of the pchannel.

        `purged`: of some vchannels only messages with a larger tick count.
        """
        self._after, self._until = span
        self._steps = {name: _Steps(grain) for name in channels}
        self._whole = self._steps.get(whole)
        self._enough = enough
        self._rows = self._bytes = 0
        self._open: dict[TxnId, tuple[int, int]] = {}
        self._whole_txns = set[TxnId]()
        self._purged = purged
        self.exact = self._after

    @property
    def span(self) -> tuple[TimeTick, TimeTick]:
        """Ticks in (after, until]."""
        return self._after, self._until

    def wants(self, vchannel: str) -> bool:
        """Whether messages of this vchannel count."""
        return not vchannel or vchannel in self._steps or self._whole is not None

    def take(self, head: RecordHead, *, hidden: bool = False) -> bool:
        """Count a record; False if later records do not matter. `hidden`: readers do not get it."""
        # Ticks grow along the log, so all later records lie after the span, too.
        if head.base_tick > self._until:
            self.exact = self._until
            return False
        if not hidden and self.wants(head.vchannel):
            self._count(head)
        self.exact = max(self.exact, min(head.last_tick, self._until))
        enough = self._enough
        return not (0 < enough.rows < self._rows or 0 < enough.bytes < self._bytes)

    def finish(self) -> None:
        """The log has no more records with ticks up to the end of the span."""
        self.exact = self._until

    def channels(self) -> dict[str, MeasuredChannel]:
        """The counts so far."""
        return {name: it.measured(self.exact) for name, it in self._steps.items()}

    def _count(self, head: RecordHead) -> None:
        part = head.txn
        if part is None:
            if head.kind not in NOT_COUNTED:
                self._count_plain(head)
        elif head.kind == MessageType.BEGIN_TXN:
            self._whole_txns.add(part.id)
        elif head.kind == MessageType.COMMIT_TXN:
            self._count_txn(head, part)
        elif head.kind == MessageType.ROLLBACK_TXN:
            self._open.pop(part.id, None)
            self._whole_txns.discard(part.id)
        elif head.kind in BODY_TYPES:
            seen, size_bytes = self._open.get(part.id, (0, 0))
            self._open[part.id] = (seen + head.messages, size_bytes + head.size_bytes)

    def _count_txn(self, commit: RecordHead, part: TxnPart) -> None:
        seen, size_bytes = self._open.pop(part.id, (0, 0))
        rows = part.bodies
        if part.id in self._whole_txns:
            self._whole_txns.discard(part.id)
            rows = seen  # compaction may have removed some
        elif 0 < seen < rows:
            # The first bodies lie further back than the walk started; their size is estimated from
            # the others.
            size_bytes = size_bytes * rows // seen
        # Commits up to the start of the span are read only to end their transactions.
        if self._floor(commit) < commit.base_tick and rows:
            self._add(commit.vchannel, commit.base_tick, commit.base_tick, rows, size_bytes)

    def _floor(self, head: RecordHead) -> TimeTick:
        if head.kind not in PURGED_KINDS:
            return self._after
        return max(self._after, self._purged.get(head.vchannel, TimeTick(0)))

    def _count_plain(self, head: RecordHead) -> None:
        first = max(head.base_tick, self._floor(head) + 1)
        last = min(head.last_tick, self._until)
        if first <= last:
            # Messages of a batch have consecutive ticks, so the part inside of the span is known
            # exactly.
            rows = last - first + 1
            size_bytes = head.size_bytes * rows // head.messages
            self._add(head.vchannel, TimeTick(first), TimeTick(last), rows, size_bytes)

    def _add(self, vchannel: str, first: TimeTick, last: TimeTick, rows: int, size: int) -> None:
        concerned = [self._steps[vchannel]] if vchannel in self._steps else []
        if not vchannel:
            concerned = list(self._steps.values())
        elif self._whole is not None and self._whole not in concerned:
            concerned.append(self._whole)
        for steps in concerned:
            steps.add(first, last, rows, size)
        self._rows += rows
        self._bytes += size


class _Steps:
    """The steps of one channel; the last one may still grow."""

    def __init__(self, grain: StepSize) -> None:
        self._grain_rows, self._grain_bytes = grain.rows, grain.bytes
        self._steps_max = grain.steps_max
        self._steps: list[SpanStep] = []
        self._closed = True

    def add(self, first: TimeTick, last: TimeTick, rows: int, size: int) -> None:
        """Count `rows` messages at ticks in [first, last]: one at each tick, or all at one tick."""
        if first == last:
            self._grow(first, last, rows, size)
            return
        done = done_bytes = 0
        while done < rows:
            part = min(self._room(size, rows), rows - done)
            upto_bytes = size * (done + part) // rows
            begin = TimeTick(first + done)
            self._grow(begin, TimeTick(begin + part - 1), part, upto_bytes - done_bytes)
            done, done_bytes = done + part, upto_bytes

    def measured(self, exact: TimeTick) -> MeasuredChannel:
        return MeasuredChannel(tuple(self._steps), exact)

    def _room(self, size: int, rows: int) -> int:
        """How many rows of a batch of `rows` rows and `size` bytes fit into the growing step."""
        grown_rows, grown_bytes = (0, 0) if self._closed else self._grown()
        room = self._grain_rows - grown_rows
        if self._grain_bytes and size:
            room = min(room, -(-(self._grain_bytes - grown_bytes) * rows // size))
        # At least 1: a row larger than a step must still be counted.
        return max(1, room)

    def _grow(self, first: TimeTick, last: TimeTick, rows: int, size: int) -> None:
        before = self._steps[-1] if self._steps else SpanStep(first, first, 0, 0)
        if not self._closed:
            first = self._steps.pop().first_tick
        self._steps.append(SpanStep(first, last, before.rows + rows, before.bytes + size))
        grown_rows, grown_bytes = self._grown()
        self._closed = grown_rows >= self._grain_rows or 0 < self._grain_bytes <= grown_bytes
        if len(self._steps) > self._steps_max:
            self._coarsen()

    def _grown(self) -> tuple[int, int]:
        """Rows and bytes of the last step; steps hold cumulative counts."""
        last = self._steps[-1]
        if len(self._steps) == 1:
            return last.rows, last.bytes
        before = self._steps[-2]
        return last.rows - before.rows, last.bytes - before.bytes

    def _coarsen(self) -> None:
        pairs = zip(self._steps[::2], [*self._steps[1::2], self._steps[-1]], strict=False)
        self._steps = [SpanStep(a.first_tick, b.tick, b.rows, b.bytes) for a, b in pairs]
        # Merged steps are twice as large, so the limits double, and the last step may grow on.
        self._grain_rows *= 2
        self._grain_bytes *= 2
        self._closed = False
