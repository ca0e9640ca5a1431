"""The collection whose rows are counted: named by partition, placed in segments by its log.

Created, filled, and read back at the end with all that its log says of segments.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from zlib import crc32

import anyio

from broker.client import Client, TidemarkError
from broker.model.master.segment_meta import SegmentMetaState
from broker.model.message import MessageType
from schemas.generated.milvus.proto import messages
from schemas.generated.milvus.proto import schema as milvus
from schemas.properties.keys import HEADER
from tests.chaos.storm.history import (
    OF_BROADCASTS,
    History,
    Listed,
    PlacedRow,
    SegmentSeen,
    pchannel_of,
)
from tests.chaos.storm.patience import Patience

NAME = "counted"
DEFAULT = "_default"
OTHERS = ("early", "late")
KINDS = (MessageType.INSERT, MessageType.CREATE_SEGMENT, MessageType.FLUSH)
ENDED = (SegmentMetaState.FLUSHED, SegmentMetaState.DROPPED)
ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class Counted:
    """`partitions`: ids by name."""

    id: int
    vchannels: tuple[str, ...]
    partitions: Mapping[str, int]

    def chosen(self, vchannel: str, name: str) -> str | None:
        """The partition that an append of this name names; None: it names none."""
        if vchannel not in self.vchannels:
            return None
        return (None, DEFAULT, *OTHERS)[crc32(name.encode()) % (2 + len(OTHERS))]

    def expected(self, vchannel: str, name: str) -> str:
        """The partition that its rows are in; "" where they are not counted."""
        return (self.chosen(vchannel, name) or DEFAULT) if vchannel in self.vchannels else ""

    def header(self) -> bytes:
        """Of a broadcast's copies, which have a partition of their own."""
        partition = self.partitions[OF_BROADCASTS]
        part = messages.PartitionSegmentAssignment(partition_id=partition, rows=1)
        return bytes(messages.InsertMessageHeader(collection_id=self.id, partitions=[part]))


async def create_counted(log: Client, shards: int) -> Counted:
    """The collection with its partitions."""
    field = milvus.FieldSchema(name="id", data_type=milvus.DataType(5), is_primary_key=True)
    schema = bytes(milvus.CollectionSchema(name=NAME, fields=[field]))
    made = await log.master.create_collection(NAME, shards=shards, milvus_schema=schema)
    for name in (*OTHERS, OF_BROADCASTS):
        await log.master.create_partition(NAME, name)
    partitions = await log.master.show_partitions(NAME)
    return Counted(made.id, tuple(map(str, made.vchannels)), partitions)


async def seal_now_and_then(log: Client, counted: Counted) -> None:
    """Once: a server that does not answer is asked again some time later."""
    with anyio.move_on_after(ASK_S):
        try:
            await log.master.seal_collection(counted.id)
        except TidemarkError:
            return


async def flush_all(
    log: Client, counted: Counted, history: History, patience: Patience, every_s: float = 0.2
) -> None:
    """Until every segment is; then their rows are in the history, as the master counts them."""
    history.partitions = {id: name for name, id in counted.partitions.items()}
    while True:
        with suppress(TidemarkError):
            await log.master.seal_collection(counted.id)
            found = await log.master.show_segments(counted.id)
            left = [it for it in found if it.state not in ENDED]
            if found and not left:
                break
            patience.saw((len(found), *[(it.id, it.state) for it in left]))
        await anyio.sleep(every_s)
    history.listed = [Listed(it.vchannel, it.id, it.partition_id, it.rows) for it in found]


async def unflushed(log: Client, counted: Counted) -> str:
    """Which segments are not, and what their pchannels are at; for the text of a violation."""
    told = list[str]()
    try:
        await log.master.seal_collection(counted.id)
    except TidemarkError as error:
        told.append(f"sealing: {type(error).__name__}: {error}")
    try:
        found = await log.master.show_segments(counted.id)
        channels = {it.name: it for it in await log.admin.channels()}
    except TidemarkError as error:
        return "; ".join([*told, f"not listed: {type(error).__name__}: {error}"])
    left = [it for it in found if it.state not in ENDED]
    told += [
        f"segment {it.id} of partition {it.partition_id} on {it.vchannel} is {it.state.value}"
        f" with {it.rows} rows up to tick {it.modified_tick}"
        for it in left
    ]
    for name in sorted({pchannel_of(it.vchannel) for it in left} & {*channels}):
        at = channels[name]
        told.append(
            f"{name} is {at.state} to node {at.node_id} at term {at.term}, closed up to tick"
            f" {at.closed_tick}: {at.growing_segments} segments grow, {at.sealed_segments} wait"
            f" for their Flush, {at.open_txns} transactions are open and {at.prepared_txns}"
            f" prepared, {at.checkpoint_lag} messages are not in the snapshot"
        )
    return "; ".join(told)


async def read_segments(log: Client, vchannel: str, history: History) -> None:
    """Every row with its segment, and where segments begin and end."""
    async for it in log.read(vchannel, until="now", types=KINDS).messages():
        header = HEADER.need(it.tags)
        if it.type == MessageType.CREATE_SEGMENT:
            made = messages.CreateSegmentMessageHeader.parse(header)
            seen = SegmentSeen(
                vchannel, it.id, made.segment_id, made.partition_id, made.max_rows, flush=False
            )
            history.segments.append(seen)
        elif it.type == MessageType.FLUSH:
            gone = messages.FlushMessageHeader.parse(header)
            seen = SegmentSeen(vchannel, it.id, gone.segment_id, gone.partition_id, 0, flush=True)
            history.segments.append(seen)
        else:
            (part,) = messages.InsertMessageHeader.parse(header).partitions
            place = part.segment_assignment
            segment = 0 if place is None else place.segment_id
            history.placed.append(
                PlacedRow(vchannel, it.payload, it.id, part.partition_id, segment)
            )
