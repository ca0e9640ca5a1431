"""Where a scanner takes records from: the tail in memory, what it read ahead, the log."""

from collections.abc import Sequence

import anyio

from broker.model.failure import Refusal
from broker.model.ids import MessageId
from broker.model.record import Record
from broker.node.state.open_channels import OpenChannel
from broker.node.state.wal_refusals import refusal_of
from broker.ports.wal import LogClosed, WalError

READ_BYTES_MIN = 64 * 1024
"""The least size of a log read, however small the consumer's credit."""


class ScannerRecords:
    """Of one scanner, which reads one piece at a time, each at most `read_bytes_max`."""

    _channel: OpenChannel

    def __init__(self, read_bytes_max: int) -> None:
        self._read_bytes_max = read_bytes_max
        self._ahead: Sequence[Record] = ()
        self._reading = anyio.CancelScope()
        self._given_up = False

    @property
    def given_up(self) -> bool:
        """Whether nothing is read any more."""
        return self._given_up

    @property
    def ahead_bytes(self) -> int:
        """The bodies of what was read ahead."""
        return sum([len(record.body) for record in self._ahead])

    def begin(self, channel: OpenChannel) -> None:
        """Read this channel. Comes before all reads."""
        self._channel = channel

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record] | Refusal:
        """Records from the tail, those read ahead, or the log; never beyond the tail's end."""
        # Memory first: readers at the tail share its records and cost the disk nothing.
        records = self._channel.tail.read(from_id)
        if records is not None:
            return records
        ahead = self._ahead
        if ahead and ahead[0].base_id <= from_id < ahead[-1].next_id:
            if from_id < ahead[0].next_id:
                return ahead
            # A group reads at two places: what lies before must not be taken a second time.
            return [record for record in ahead if record.next_id > from_id]
        found = await self._read_log(from_id, max(bytes_max, READ_BYTES_MIN))
        if isinstance(found, Refusal):
            return found
        end = self._channel.tail.next_id  # the log may hold a group that is not yet published
        if found and found[-1].next_id <= end:
            return found
        return [r for r in found if r.next_id <= end]

    def keep(self, records: Sequence[Record], from_id: MessageId) -> None:
        """Keep records read from the log beyond the credit, unless the tail holds them."""
        in_log = self._channel.tail.read(from_id) is None
        self._ahead = [r for r in records if r.next_id > from_id] if in_log else ()

    def drop(self) -> None:
        """Keep nothing: the consumer has reached the end."""
        self._ahead = ()

    def give_up(self) -> None:
        """Let a read that waits for the log, and later ones, be refused as by a closed log."""
        self._given_up = True
        self._reading.cancel()

    async def _read_log(self, from_id: MessageId, bytes_max: int) -> Sequence[Record] | Refusal:
        log = self._channel.log
        if not self._given_up:
            try:
                with anyio.CancelScope() as self._reading:
                    return await log.read(from_id, min(bytes_max, self._read_bytes_max))
            except WalError as error:
                return refusal_of(error)
        return refusal_of(LogClosed(self._channel.channel.name))
