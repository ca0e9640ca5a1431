"""Measures batches on a collection that a CreateCollection message announced, and on another.

The broker places each batch of an announced collection in a segment.
"""

import time

from benchmark.measures.batches import BATCH, BATCHES_IN_FLIGHT, load
from benchmark.results.figures import RATE
from broker.client import Message, connect
from broker.client.cluster.targets import NewVChannel
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages as protocol

COLLECTION, PARTITION = 4000, 4001
ANNOUNCED = NewVChannel(f"by-dev-rootcoord-dml_6_{COLLECTION}v0")
PLAIN = NewVChannel(f"by-dev-rootcoord-dml_6_{COLLECTION + 1}v0")


class Announced:
    """Appends to one server with the Python client."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._announced = False

    async def append(self, messages: int, *, announced: bool) -> dict[str, float]:
        """Append from four tasks, each with one batch of 1,000 in flight."""
        vchannel = ANNOUNCED if announced else PLAIN
        async with connect(self._address) as log:
            if announced and not self._announced:
                header = protocol.CreateCollectionMessageHeader(
                    collection_id=COLLECTION, partition_ids=[PARTITION]
                )
                kind = MessageType.CREATE_COLLECTION
                await log.raw_append(vchannel, Message(b"", type=kind, header=bytes(header)))
                self._announced = True
            # Neither pays for the first segment file of their log.
            await load(log, vchannel, BATCHES_IN_FLIGHT * BATCH, "fsync")
            started = time.perf_counter()
            sent = await load(log, vchannel, messages, "fsync")
            return {RATE: sent / (time.perf_counter() - started), "messages": sent}
