"""What a scripted broker stores of a batch."""

from itertools import accumulate, pairwise

from broker.model.batch import OwnProperties
from schemas.batches import ScannedBatch
from schemas.encoding.varint import varint


def single_messages(batch: ScannedBatch) -> list[bytes]:
    """Each message as Milvus's single messages are stored."""
    ends = accumulate(batch.sizes, initial=0)
    own = OwnProperties(batch.own_sizes, batch.own).split(len(batch.sizes))
    return [
        b"\x12" + varint(end - start) + batch.body[start:end] + batch.properties + each
        for (start, end), each in zip(pairwise(ends), own, strict=True)
    ]
