"""What one group of records adds to the meter of its pchannel."""

from collections.abc import Collection, Iterable, Sequence

from broker.core.segments.segment_table import SegmentTable
from broker.core.txn.txn_session import TxnSession
from broker.model.ids import TICK_LOGICAL_BITS
from broker.model.message import MessageType
from broker.model.record import Record
from broker.node.state.channel_meters import ChannelMeter


class StoredCounts:
    """Counts a group's `data`, its records without time ticks, while they are written."""

    def __init__(self, data: Sequence[Record], collections: Collection[str]) -> None:
        """`collections`: vchannels whose rows the segment table counts, from their headers."""
        self._messages = self._bytes = 0
        self._insert_bytes = self._insert_rows = self._delete_rows = 0
        for record in data:
            count, size = len(record.sizes), len(record.body)
            rows = 0 if record.vchannel in collections else count
            self._messages += count
            self._bytes += size
            if record.kind == MessageType.INSERT:
                self._insert_bytes += size
                self._insert_rows += rows
            elif record.kind == MessageType.DELETE:
                self._delete_rows += rows

    def add_to(
        self,
        meter: ChannelMeter,
        table: SegmentTable,
        ended: Iterable[TxnSession],
        *,
        ticks: int,
    ) -> None:
        """Add them once the group is durable. `ended`: transactions that it ended."""
        meter.messages += self._messages
        meter.bytes += self._bytes
        meter.ticks_acknowledged += self._messages
        meter.tick_records_acknowledged += ticks
        meter.insert_bytes += self._insert_bytes
        meter.insert_rows += self._insert_rows + table.inserted_rows
        meter.delete_rows += self._delete_rows + table.deleted_rows
        table.inserted_rows = table.deleted_rows = 0
        for session in ended:
            if session.outcome is not None:
                # The id of a transaction is the tick of its begin.
                took_ms = (session.outcome.tick >> TICK_LOGICAL_BITS) - (
                    session.context.id >> TICK_LOGICAL_BITS
                )
                meter.txn_ended(session.state.value.replace(" ", "_"), took_ms / 1000)
