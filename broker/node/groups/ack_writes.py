"""Writes acknowledgements of a group: all that came together in one record.

Those in a transaction have records of their own, and so has what dies in an ordered group.

Each is answered when it is durable. Those of a write that failed return to the book of leases.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors import Envelope
from broker.core.groups.group_changes import (
    SPANS_MAX,
    AckedInTxn,
    GroupChange,
    MessagesAcked,
    MessagesDying,
)
from broker.core.groups.lease_book import LeaseBook
from broker.core.groups.tick_spans import TickSpans
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.node.group_messages import AckMessages
from broker.node.groups.group_writer import GroupWriter


@dataclass(frozen=True, slots=True)
class TakenAck:
    """An acknowledgement that the book has taken. No `envelope`: nobody waits for it.

    `times`: how often its messages were delivered. `death`: they die instead; `known` is called
    when it is durable or refused.
    """

    envelope: Envelope[Any] | None
    ack: AckMessages
    spans: tuple[TickSpan, ...]
    times: int
    death: MessagesDying | None = None
    known: Callable[[], object] | None = None


IN_FLIGHT_MAX = 2
"""Records that are being written; what comes meanwhile gathers for the next one."""

RETRY_S = 1.0
"""What nobody has asked for is tried again after it: a full disk may refuse it for hours."""


class AckWrites:
    """For one Group. `settled` is called after each answer, and then `write` has to be."""

    def __init__(
        self,
        key: GroupKey,
        writer: GroupWriter,
        settled: Callable[[], object],
        *,
        in_order: bool = False,
    ) -> None:
        """`in_order`: one record at a time, and what waits behind one that fails, fails with it.

        So no later message of a key is acknowledged when an earlier one is not. What members reject
        has to go the same way then.
        """
        self._in_flight_max = 1 if in_order else IN_FLIGHT_MAX
        self.in_order = in_order
        self._key = key
        self._writer = writer
        self._settled = settled
        self._waiting: deque[TakenAck] = deque()
        self._in_txns: list[TakenAck] = []
        """Each gets a record of its own, at once: they are as few as open transactions."""
        self._failed: list[TakenAck] = []
        self._in_flight = 0

    @property
    def waits(self) -> bool:
        """Whether there is something to write, or to give back."""
        return bool(self._waiting or self._in_txns or self._failed)

    def add(self, taken: TakenAck) -> None:
        """Take it along with the next `write`."""
        if taken.ack.txn:
            self._in_txns.append(taken)
        else:
            self._waiting.append(taken)

    def write(self) -> None:
        """Begin to write what waits, in as few records as may hold it."""
        in_txns, self._in_txns = self._in_txns, []
        for taken in in_txns:
            change = AckedInTxn(self._key.name, taken.ack.txn, taken.spans, taken.times)
            self._write(change, [taken])
        while self._waiting and self._in_flight < self._in_flight_max:
            together = [self._waiting.popleft()]
            self._in_flight += 1
            if (death := together[0].death) is not None:
                self._write(death, together)
                continue
            count = len(together[0].spans)
            while self._waiting and self._waiting[0].death is None:
                count += len(self._waiting[0].spans)
                if count > SPANS_MAX:
                    break
                together.append(self._waiting.popleft())
            self._write(MessagesAcked(self._key.name, _joined(together)), together)

    def return_failed(self, book: LeaseBook, now_s: float) -> None:
        """Give back what was not stored, or may not be."""
        for it in self._failed:
            due_s = now_s if it.envelope is not None else now_s + RETRY_S
            book.ack_failed(it.ack.member, it.ack.lease, it.spans, due_s, it.times)
        self._failed.clear()

    def _write(self, change: GroupChange, together: list[TakenAck]) -> None:
        def answered(refusal: Refusal | None) -> None:
            if not isinstance(change, AckedInTxn):
                self._in_flight -= 1
                if refusal is not None and self.in_order:
                    together.extend(self._waiting)
                    self._waiting.clear()
            for taken in together:
                if taken.known is not None:
                    taken.known()
                if taken.envelope is None:
                    continue
                if len(together) == 1:
                    # A lone member waits for nothing else. Of many the last would wait longer.
                    taken.envelope.reply_at_once(refusal)
                else:
                    taken.envelope.reply(refusal)
            if refusal is not None:
                self._failed += together
            self._settled()

        self._writer.write_then(self._key.vchannel, change, answered)


def _joined(together: list[TakenAck]) -> tuple[TickSpan, ...]:
    # The usual case of a member that settles messages one by one.
    if len(together) == 1:
        return together[0].spans
    return tuple(TickSpans([span for taken in together for span in taken.spans]))
