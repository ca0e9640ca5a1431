"""Reads delayed messages that are due by their ids, and makes the copies that groups read."""

import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from broker.model.groups.delivery_times import ReleasedMessage
from broker.model.ids import MessageId
from broker.model.record import Record, RecordSlice
from broker.node.state.open_channels import OpenChannel
from broker.ports.headers import Headers
from broker.ports.wal import Corrupt, OutOfRange

READ_BYTES: Final = 64 * 1024
COPIES_BYTES: Final = 1 << 20
"""Of the bodies in one record, except that one message may be larger."""

notes = logging.getLogger("broker.node")


class DueMessages:
    """For one Scheduler."""

    count_max = 512
    """So many messages become one record."""

    def __init__(self, opened: OpenChannel, headers: Headers) -> None:
        self._opened = opened
        self._headers = headers
        self._near: Sequence[Record] = ()

    async def copies(
        self, due: Sequence[ReleasedMessage]
    ) -> tuple[ReleasedMessage, Sequence[bytes]]:
        """Copies of the first of these, in their order, and the last one that is among them.

        A message that retention or a purge has removed, or that is damaged, has none: it is lost to
        groups.
        """
        bodies: list[bytes] = []
        at = size_bytes = 0
        while at < len(due) and size_bytes < COPIES_BYTES:
            part = await self._part(due, at)
            if part is None:
                notes.warning(
                    "%s: delayed message %d was removed or damaged before it was due",
                    self._opened.channel.name,
                    due[at].id,
                )
                at += 1
                continue
            made = self._headers.released(part)
            bodies += made
            size_bytes += sum(map(len, made))
            at += len(made)
        self._near = ()
        return due[at - 1], bodies

    async def _part(self, due: Sequence[ReleasedMessage], at: int) -> RecordSlice | None:
        """The message, with those that follow it both in its record and in order."""
        record = await self._record(MessageId(due[at].id))
        if record is None or self._is_purged(record, due[at].id):
            return None
        first = end = due[at].id - record.base_id
        size_bytes = 0
        for each in due[at:]:
            if each.id - record.base_id != end or each.id >= record.next_id:
                break
            size_bytes += record.sizes[end]
            if size_bytes > COPIES_BYTES and end > first:
                break
            end += 1
        return RecordSlice(record, first, end)

    def _is_purged(self, record: Record, id: int) -> bool:
        """Whether a purge has removed it, although its space may not be given back yet."""
        purge = self._opened.purges.purges.get(record.vchannel)
        if purge is None or record.base_tick + id - record.base_id > purge.upto:
            return False
        # One of a transaction has the tick of the commit.
        return record.txn is None or record.next_id <= purge.whole_id

    async def _record(self, id: MessageId) -> Record | None:
        found = _holding(self._near, id)
        if found is not None:
            return found
        records = self._opened.tail.read(id)
        if records is None:
            try:
                records = await self._opened.log.read(id, READ_BYTES)
            except (OutOfRange, Corrupt):
                return None
        self._near = records
        return _holding(records, id)


def _holding(records: Sequence[Record], id: MessageId) -> Record | None:
    at = bisect_right(records, id, key=lambda it: it.base_id) - 1
    return records[at] if at >= 0 and id < records[at].next_id else None
