"""A reader: takes down where each flight lies, and holds the time ticks to their promise."""

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import compute

from broker.client import Client
from broker.client.batch import MessageBatch
from runs.master_demo.flights import SPEED
from runs.master_demo.flow import Flow
from runs.master_demo.placement import placement_of

TICK_TYPE, TICK_PROPERTY = 1200, "tidemark.time_tick"
KEPT = "number", "month", "arr_delay", "id", "at"


@dataclass(slots=True)
class Reader:
    """What it has read. `late`: flights behind a time tick that had promised otherwise."""

    parts: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    with_speed: int = 0
    late: int = 0
    promised: Counter[str] = field(default_factory=Counter)
    ticks: int = 0

    async def run(self, log: Client, target: str, flow: Flow) -> None:
        """Read until everything up to the end of the flow is read."""
        async with log.read_batches(target) as reader:
            async for batch in reader:
                if len(batch) and batch.has_rows:
                    self._take(batch)
                elif len(batch) and batch.types[0] == TICK_TYPE:
                    self._ticked(batch)
                if flow.ended_by(reader.closed_tick):
                    return

    def table(self) -> pa.Table:
        """All rows, with `partition` and `segment`."""
        return pa.concat_tables(self.parts)

    def _take(self, batch: MessageBatch) -> None:
        rows, placed = batch.rows(), placement_of(batch)
        self.rows += rows.num_rows
        if SPEED.name in rows.schema.names:
            self.with_speed += rows.num_rows
        promised = self.promised[batch.vchannel]
        self.late += compute.sum(compute.less_equal(rows["at"], promised)).as_py()
        kept = pa.Table.from_batches([rows]).select(KEPT)
        for name, value in (("partition", placed.partition), ("segment", placed.segment)):
            kept = kept.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
        self.parts.append(kept)

    def _ticked(self, batch: MessageBatch) -> None:
        for vchannel, properties in zip(batch.vchannels, batch.properties, strict=True):
            # One that is repeated after a lost answer is not above the last.
            self.promised[vchannel] = max(self.promised[vchannel], int(properties[TICK_PROPERTY]))
            self.ticks += 1
