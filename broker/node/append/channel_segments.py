"""Segments of collections on one pchannel: gives the core decoded headers and randomness."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import assert_never

from broker.core.segments.segment_assigner import (
    ROW_TYPES,
    DecodedEffect,
    SegmentAssigner,
    placed_apart,
    segment_assigner,
)
from broker.core.segments.segment_table import SegmentTable
from broker.core.segments.untouched import untouched
from broker.core.txn.txn_session import TxnSession
from broker.core.txn.txn_state import TxnState
from broker.model.batch import NewBatch
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TimeTick
from broker.model.message import NewMessage
from broker.node.appender_messages import (
    ObeySegmentOrders,
    SealOverdue,
    SealRequest,
    SealSegments,
)
from broker.ports.headers import BadHeader, Headers


class ChannelSegments:
    """See the module."""

    def __init__(self, table: SegmentTable, headers: Headers, random: Random) -> None:
        self.table = table
        self._headers = headers
        # Endless: `random` never returns the sentinel None.
        self._chances: Iterator[float] = iter(random.random, None)

    def placing(
        self, messages: Sequence[NewMessage]
    ) -> tuple[Sequence[Sequence[NewMessage]] | None, SegmentAssigner | None]:
        """What to place of each message of a group, and the assigner of all that is placed.

        No parts: the messages as they are; no assigner: none of them needs one. Both at almost no
        cost for messages of plain logs.
        """
        table = self.table
        if untouched(table, messages):
            return None, None
        parts = placed_apart(table, messages)
        placed = messages if parts is None else [each for part in parts for each in part]
        return parts, segment_assigner(table, placed, self._read, self._headers, self._chances)

    def seal(self, request: SealRequest, tick: TimeTick) -> None:
        """Seal segments; their Flush messages are written with the next group or tick."""
        match request:
            case SealOverdue():
                self.table.seal_overdue(tick)
            case SealSegments(ids, why):
                self.table.seal_some(ids, why)
            case ObeySegmentOrders(orders):
                self.table.obey(orders)
            case _:
                assert_never(request)

    def release(self, resolved: Sequence[TxnSession]) -> None:
        """Release the segments of transactions whose commit or rollback is durable."""
        for each in resolved:
            committed = each.state is TxnState.COMMITTED
            self.table.release(each.context.id, committed=committed)

    def _read(self, message: NewMessage) -> DecodedEffect:
        """The effect of a message. Refuses with UNRECOVERABLE: clients retry any other code."""
        try:
            if not isinstance(message, NewBatch):
                return self._headers.effect(message.type, message.body)
            if message.type in ROW_TYPES:
                return self._headers.batch_effect(message.type, message.part.properties)
        except BadHeader as error:
            return Refusal(StreamingCode.UNRECOVERABLE, str(error))
        cause = f"messages of type {message.type} cannot be in a batch; append them one by one"
        return Refusal(StreamingCode.UNRECOVERABLE, cause)
