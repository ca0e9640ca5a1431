"""Where a batch of rows lies: the header that the owner of the log has stamped it with."""

from dataclasses import dataclass

from broker.client.batch import MessageBatch
from schemas.generated.milvus.proto import messages
from schemas.properties.keys import HEADER


@dataclass(frozen=True, slots=True)
class Placement:
    """The partition and the segment of all rows of a batch."""

    partition: int
    segment: int


def placement_of(batch: MessageBatch) -> Placement:
    """Raises SystemExit for rows that lie in no segment."""
    header = HEADER.read(batch.tags[0])
    parts = messages.InsertMessageHeader.parse(header or b"").partitions
    if len(parts) != 1 or parts[0].segment_assignment is None:
        raise SystemExit(f"rows at {batch.vchannel} {batch.ids[0]} lie in {len(parts)} segments")
    return Placement(parts[0].partition_id, parts[0].segment_assignment.segment_id)
