"""Turn the messages of a lease into ReadResponses, one for each batch, without copying bodies."""

from collections.abc import Sequence

from broker.core.log.delivery import DeliveredItem
from broker.edge.tidemark.read_batches import transaction_batch
from broker.edge.tidemark.slice_to_batch import batch_of
from broker.model.message import ClosedTick, Delivered, DeliveredInTxn
from broker.model.record import RecordSlice
from schemas.batches import read_batch, read_response

Read = Sequence[bytes]
"""A ReadResponse in parts."""


def leased_reads(items: Sequence[DeliveredItem]) -> list[Read]:
    """Each batch as a ReadResponse."""
    batches: list[Sequence[bytes]] = []
    members: list[DeliveredInTxn] = []
    for item in items:
        match item:
            case RecordSlice():
                batches += (*transaction_batch(members), read_batch(batch_of(item)))
                members = []
            case DeliveredInTxn():
                if item.begins is None:
                    members.append(item)
            case Delivered():  # a commit, which ends the members before it
                batches += transaction_batch(members)
                members = []
            case ClosedTick():
                continue
    batches += transaction_batch(members)
    return [read_response(batch) for batch in batches]


def in_parts(reads: Sequence[Read], bytes_max: int) -> list[list[Read]]:
    """The same in parts of about `bytes_max` bytes, at least one of them, none empty but that."""
    parts: list[list[Read]] = [[]]
    size = 0
    for read in reads:
        read_bytes = sum(map(len, read))
        if parts[-1] and size + read_bytes > bytes_max:
            parts.append([])
            size = 0
        parts[-1].append(read)
        size += read_bytes
    return parts
