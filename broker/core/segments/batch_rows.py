"""What a batch of the native protocol means to the collection of its vchannel.

A batch is one placement: as many rows as it has messages, all in one segment. Its producer may name
collection and partition in the header that its messages share; without a header the rows go to the
collection of the vchannel and its default partition. The header then says no schema version,
because nobody knows which version of Milvus's schema the payloads of a program have. The schemas
of Arrow rows have versions of their own, in another property, which were checked before.
"""

from dataclasses import replace

from broker.core.segments.segment_table import CollectionSegments
from broker.model.batch import BatchPart, NewBatch, payload_bytes
from broker.model.effect import Deleted, Inserted
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import SegmentId

NO_SEGMENT = SegmentId(0)


def rows_of_batch(
    batch: NewBatch, said: Inserted | Deleted, collection: CollectionSegments
) -> Inserted | Deleted | Refusal:
    """The rows of a batch; `said`: by its header, zeros where it says nothing."""
    count = len(batch.sizes)
    if said.rows not in (0, count):
        return Refusal(
            StreamingCode.UNRECOVERABLE,
            f"the header of a batch of {count} messages says {said.rows} rows; a batch has one row"
            " for each message, so leave the number out",
        )
    if isinstance(said, Deleted):
        id = said.collection_id or collection.id
        return Deleted(id, count, payload_bytes(batch.sizes, batch.part))
    size_bytes = said.size_bytes or batch.size
    id, partition_id, version = said.collection_id, said.partition_id, said.schema_version
    if not _is_unsaid(said):
        return Inserted(id, partition_id, NO_SEGMENT, count, size_bytes, version)
    default = collection.default_partition_id
    if default is None:
        return Refusal(
            StreamingCode.UNRECOVERABLE,
            f"collection {collection.id} was created without partitions, so a batch must name one"
            " in its property _h",
        )
    return Inserted(collection.id, default, NO_SEGMENT, count, size_bytes, None)


def stored_rows(
    said: Inserted | Deleted, sizes: tuple[int, ...], part: BatchPart
) -> Inserted | Deleted | None:
    """The rows of a stored batch by its header; None if it has none: no collection counted it.

    The opposite of `rows_of_batch`: a replay finds what was counted when the batch was placed.
    """
    if _is_unsaid(said):
        return None
    if isinstance(said, Deleted):
        return replace(said, size_bytes=payload_bytes(sizes, part))
    return said


def _is_unsaid(said: Inserted | Deleted) -> bool:
    if isinstance(said, Deleted):
        return not said.collection_id
    return not (said.collection_id or said.partition_id)
