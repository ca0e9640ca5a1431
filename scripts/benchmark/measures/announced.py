"""Measures batches on a collection that a CreateCollection message announced, and on another.

The broker places each batch of an announced collection in a segment.
"""

import time

from benchmark.measures.batches import load
from benchmark.results.figures import RATE
from broker.client import Client, Message, connect
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
        self._prepared = False

    async def append(self, messages: int, *, announced: bool) -> dict[str, float]:
        """Append from four tasks, each with one batch of 1,000 in flight."""
        vchannel = ANNOUNCED if announced else PLAIN
        async with connect(self._address) as log:
            before = 0 if self._prepared else await self._prepare(log, messages)
            started = time.perf_counter()
            sent = await load(log, vchannel, messages, "fsync")
            took_s = time.perf_counter() - started
            # The server used CPU time for what came before, too.
            return {RATE: sent / took_s, "messages": before + sent}

    async def _prepare(self, log: Client, messages: int) -> int:
        """Announce the collection, and append as much to both: a cold server favours the second."""
        header = protocol.CreateCollectionMessageHeader(
            collection_id=COLLECTION, partition_ids=[PARTITION]
        )
        created = Message(b"", type=MessageType.CREATE_COLLECTION, header=bytes(header))
        await log.raw_append(ANNOUNCED, created)
        self._prepared = True
        return sum([await load(log, it, messages, "fsync") for it in (PLAIN, ANNOUNCED)])
