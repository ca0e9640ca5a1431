"""A write node: stores the rows of its channels in files, a folder for each segment.

It reports how many files a segment has and how far it has read, and acknowledges flushed segments
once all their rows are in its files.
"""

from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc

from broker.client import Client
from broker.client.master import TickOrigin
from broker.model.ids import TICK_LOGICAL_BITS
from runs.master_demo.flow import Flow
from runs.master_demo.placement import placement_of

ROWS_A_FILE = 2_500
REPORT_TICKS = 200 << TICK_LOGICAL_BITS
"""Between two reports: 200 ms."""


class WriteNode:
    """`stored` counts the rows in its files, by segment."""

    def __init__(self, number: int, channels: list[str], folder: Path) -> None:
        self.number = number
        self.channels = channels
        self.stored: Counter[int] = Counter()
        self.acknowledged = 0
        self._folder = folder
        self._files: Counter[int] = Counter()
        self._held: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)

    async def run(self, log: Client, flow: Flow) -> None:
        """Store rows until all up to the end of the flow are in files."""
        reported = 0
        async with log.read_batches(self.channels) as reader:
            async for batch in reader:
                if len(batch) and batch.has_rows:
                    self._take(placement_of(batch).segment, batch.rows())
                tick = reader.closed_tick
                if tick > reported + REPORT_TICKS:
                    await self._report(log, tick)
                    reported = tick
                if flow.ended_by(tick):
                    break
        for segment in list(self._held):
            self._write(segment)
        await self._report(log, flow.end_tick)

    async def acknowledge(self, log: Client) -> None:
        """Acknowledge the flushed segments of which it has every row."""
        flushed = [it async for it in log.master.list_flushes()]
        whole = [it.id for it in flushed if self.stored[it.id] == it.rows]
        refused = await log.master.acknowledge_flushes(whole)
        self.acknowledged += len(whole) - len(refused)

    async def _report(self, log: Client, tick: int) -> None:
        await log.master.report_time_tick(TickOrigin.WRITE_NODES, self.number, tick)
        await log.master.report_binlogs(self._files)

    def _take(self, segment: int, rows: pa.RecordBatch) -> None:
        held = self._held[segment]
        held.append(rows)
        if sum(it.num_rows for it in held) >= ROWS_A_FILE:
            self._write(segment)

    def _write(self, segment: int) -> None:
        held = self._held.pop(segment)
        folder = self._folder / str(segment)
        folder.mkdir(parents=True, exist_ok=True)
        self._files[segment] += 1
        path = folder / f"{self._files[segment]:04d}.arrow"
        # Rows from before a column was added have fewer columns.
        rows = pa.concat_tables(
            [pa.Table.from_batches([it]) for it in held], promote_options="default"
        )
        with ipc.new_file(path, rows.schema) as file:
            file.write_table(rows)
        with ipc.open_file(path) as written:
            self.stored[segment] += written.read_all().num_rows
