"""The shard state of one pchannel with what it needs of the outside: headers read, chances drawn.

It owns no decision: what a message means is read here, what follows from it is decided in the core.
Next: broker/core/segments/segment_assigner.py
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import assert_never

from broker.core.segments.segment_assigner import DecodedEffect, SegmentAssigner, segment_assigner
from broker.core.segments.segment_table import SegmentTable
from broker.core.txn.txn_session import TxnSession
from broker.core.txn.txn_state import TxnState
from broker.model.batch import NewBatch
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TimeTick
from broker.model.message import NewMessage
from broker.node.appender_messages import SealOverdue, SealSegments
from broker.ports.headers import BadHeader, Headers


class ShardState:
    """See the module."""

    def __init__(self, shards: SegmentTable, headers: Headers, random: Random) -> None:
        self.shards = shards
        self._headers = headers
        self._chances: Iterator[float] = iter(random.random, None)

    def assigner_for(self, messages: Sequence[NewMessage]) -> SegmentAssigner | None:
        """The segment assigner of a group; None, at almost no cost, if no message needs one."""
        return segment_assigner(self.shards, messages, self._read, self._headers, self._chances)

    def seal(self, about: SealOverdue | SealSegments, tick: TimeTick) -> None:
        """Their Flush goes with the next group, or with the next tick."""
        match about:
            case SealOverdue():
                self.shards.seal_overdue(tick)
            case SealSegments(ids, why):
                self.shards.seal_some(ids, why)
            case _:
                assert_never(about)

    def release(self, resolved: Sequence[TxnSession]) -> None:
        """Those that are resolved, durably, hold no segments any more."""
        for each in resolved:
            committed = each.state is TxnState.COMMITTED
            self.shards.release(each.context.id, committed=committed)

    def _read(self, message: NewMessage) -> DecodedEffect:
        """UNRECOVERABLE when nobody could: older clients repeat any other refusal for ever."""
        if isinstance(message, NewBatch):
            return Refusal(
                StreamingCode.UNRECOVERABLE,
                "a batch has no headers, which say where rows of a collection belong: append its"
                " messages one by one, as Milvus does",
            )
        try:
            return self._headers.effect(message.type, message.body)
        except BadHeader as error:
            return Refusal(StreamingCode.UNRECOVERABLE, str(error))
