"""Tells at once that a group of messages concerns no collection, which is so of plain logs."""

from collections.abc import Sequence

from broker.core.segments.segment_assigner import DDL_TYPES
from broker.core.segments.segment_table import SegmentTable
from broker.model.message import MessageType, NewMessage

_OPENS = frozenset({MessageType.CREATE_COLLECTION})


def untouched(table: SegmentTable, messages: Sequence[NewMessage]) -> bool:
    """Whether these messages change nothing in the table, and it writes nothing with them.

    Where it has collections, a true answer means that `placed_apart` and `segment_assigner` return
    None; a false one only that they must be asked.
    """
    if table.idle:
        return _OPENS.isdisjoint([message.type for message in messages])
    # The first message most often tells it of rows of a collection, which then pay nothing here.
    if table.sealed or table.required or (messages and table.is_ours(messages[0].vchannel)):
        return False
    vchannels = {message.vchannel for message in messages}
    return (
        table.collections.keys().isdisjoint(vchannels)
        and table.dropped.keys().isdisjoint(vchannels)
        and DDL_TYPES.isdisjoint([message.type for message in messages])
    )
