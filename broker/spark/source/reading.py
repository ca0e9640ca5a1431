"""Reads one partition as record batches: each message between two cuts once, in order.

Runs in a Python worker. Lost data raises DataLoss unless the query accepts it. A broken stream is
opened again, and rows that were yielded before are skipped.

Next: broker/spark/source/columns.py
"""

import logging
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from broker.client import Cut, OutOfRange, TidemarkError, Unrecoverable
from broker.client.errors import NodeUnreachable
from broker.client.start_time import refuse_removed
from broker.spark.gateway import PATIENCE_S, UNREACHABLE_S, Gateway, gateway_here
from broker.spark.refusals import DataLoss, told_to_spark
from broker.spark.server_options import Server

if TYPE_CHECKING:
    from broker.spark.source.columns import RowShape
    from broker.spark.source.message_rows import MessageShape

ROWS_MIN: Final = 1024
"""Smaller batches are joined: for Spark a batch of ten rows costs as much as one of a thousand."""
BYTES_MIN: Final = 1024 * 1024
"""A batch of this size is not joined, however few rows it has."""
PAUSE_S: Final = 0.5
ID_MAX: Final = (1 << 63) - 1
CUT_TXNS: Final = (
    "tidemark: the query starts at earliest and skips transactions that began before the start of"
    " the log, because retention has removed a part of them: %s"
)
log = logging.getLogger("tidemark.spark")


@dataclass(frozen=True, slots=True)
class Span:
    """Messages of some vchannels of one pchannel, with ticks above the cut's and up to `end_tick`.

    `beginning`: where their log began when the query started at `earliest`; 0 for other starts.
    """

    vchannels: tuple[str, ...]
    start: Cut
    end_tick: int
    beginning: int = 0


@dataclass(frozen=True)
class SpanPartition(InputPartition):
    """Everything a worker needs to read one span."""

    span: Span
    server: Server
    shape: "RowShape | MessageShape"
    fail_on_data_loss: bool
    proven: bool
    """Whether executors have reached the broker before: when it is silent, it is only away."""


def read_span(partition: SpanPartition) -> Iterator[pa.RecordBatch]:
    """Yield record batches of one span. Raises DataLoss, and Failed when no broker answers."""
    gateway = gateway_here(partition.server)
    gateway.proven = gateway.proven or partition.proven
    with told_to_spark():
        yield from _joined(SpanReader(partition, gateway).batches())


class SpanReader:
    """Reads one span over as many streams as it takes."""

    def __init__(self, partition: SpanPartition, gateway: Gateway) -> None:
        self._partition = partition
        self._gateway = gateway
        # Rows at the start tick belong to the span before, whatever their ids.
        self._seen = (int(partition.span.start.tick), ID_MAX)
        """Tick and id of the last row yielded."""
        self._start = partition.span.start
        self._broken_s = 0.0
        self._without_cut_txns = False
        """Whether to skip transactions whose begin was removed."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield each row once."""
        while True:
            try:
                for batch in self._gateway.read(self._open):
                    # A stream that makes progress may break any number of times.
                    self._broken_s = 0.0
                    rows = self._unseen(batch)
                    if rows is not None:
                        yield rows
                self._check_beginning()
                return
            except (OutOfRange, Unrecoverable) as error:
                self._accept_loss(error)
            except TidemarkError as error:
                self._pause(error)

    def _open(self, client: Any) -> Any:
        span = self._partition.span
        start = "all" if self._without_cut_txns else self._start
        return self._partition.shape.open(client, span.vchannels, start=start, until=span.end_tick)

    def _unseen(self, batch: Any) -> pa.RecordBatch | None:
        shape = self._partition.shape
        ticks, ids = shape.places(batch)
        last = len(batch) - 1
        first = 0
        # A stream that was opened again begins at the start of the span; skip what was yielded.
        if (ticks[0], ids[0]) <= self._seen:
            places = _Places(ticks, ids)
            first = bisect_right(places, self._seen)
        if first > last:
            return None
        self._seen = ticks[last], ids[last]
        rows = shape.shaped(batch)
        return rows.slice(first) if first else rows

    def _check_beginning(self) -> None:
        """Raise DataLoss when the log no longer begins where the query did."""
        span = self._partition.span
        if not self._without_cut_txns or not self._partition.fail_on_data_loss:
            return
        held = self._gateway.held(span.vchannels[:1])[span.vchannels[0]]
        if held.first_id > span.beginning:
            raise DataLoss(
                [f"{held.name} lost ids [{span.beginning}, {held.first_id}) while they were read"]
            )
        if self._was_purged():
            raise DataLoss([f"{', '.join(span.vchannels)} were purged while they were read"])

    def _was_purged(self) -> bool:
        """Return whether a purge reaches beyond the start."""
        start = self._partition.span.start
        held = self._gateway.held(self._partition.span.vchannels)
        return any(
            it.purged_tick > start.tick
            and self._gateway.cut([name], it.purged_tick).ends[name] > start.ends[name]
            for name, it in held.items()
        )

    def _accept_loss(self, error: TidemarkError) -> None:
        """Continue with what is left. Raises DataLoss when the query does not accept that.

        A query from `earliest` continues: some transaction is nearly always open where retention
        cuts, and the part of it before the cut is lost like every other message of that time.
        """
        partition = self._partition
        # While the log has its first record, no transaction can have lost its begin.
        was_cut = (
            isinstance(error, Unrecoverable)
            and partition.span.beginning > 1
            and not self._was_purged()
        )
        if self._without_cut_txns or (partition.fail_on_data_loss and not was_cut):
            names = ", ".join(partition.span.vchannels)
            raise DataLoss([f"{names}: {error}"]) from error
        self._without_cut_txns = True
        self._check_beginning()
        if partition.fail_on_data_loss:
            log.warning(CUT_TXNS, error)
        else:
            log.warning("tidemark: data loss accepted: %s", error)

    def _pause(self, error: TidemarkError) -> None:
        now_s = time.monotonic()  # noqa: TID251 - Spark calls us synchronously
        self._broken_s = self._broken_s or now_s
        # An address that was tried for a while and never reached is a wrong one.
        unreached = isinstance(error, NodeUnreachable) and not self._partition.proven
        patience_s = UNREACHABLE_S if unreached else PATIENCE_S
        late = now_s - self._broken_s > patience_s
        if late or not error.retriable or not self._gateway.proven:
            raise error
        log.warning("tidemark: resuming the read after %s", error)
        time.sleep(PAUSE_S)  # noqa: TID251
        self._resume_behind_seen()

    def _resume_behind_seen(self) -> None:
        """Let the next stream start at the last row yielded, so that nothing else is sent again."""
        tick, id = self._seen
        # More rows of the last tick may follow.
        if tick - 1 <= self._start.tick or self._without_cut_txns:
            return
        names = self._partition.span.vchannels
        start = self._gateway.cut(names, tick - 1)
        # After the cut: when retention has come further, its ends are where the log begins now.
        held = self._gateway.held(names[:1])[names[0]]  # all are of one log
        try:
            if held.first_id > id + 1:  # else nothing behind the last row is gone
                refuse_removed(names[0], tick - 1, held)
        except OutOfRange as error:
            self._accept_loss(error)
        else:
            self._start = start


class _Places(Sequence[tuple[int, int]]):
    """The position of each row: tick, then id; increasing."""

    def __init__(self, ticks: Sequence[int], ids: Sequence[int]) -> None:
        self._ticks = ticks
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ticks)

    def __getitem__(self, at: Any) -> Any:
        return self._ticks[at], self._ids[at]


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        # A large batch behind small ones is joined with them, to keep the order.
        if not waiting and (len(batch) >= ROWS_MIN or batch.nbytes >= BYTES_MIN):
            yield batch
            continue
        waiting.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= ROWS_MIN or size >= BYTES_MIN:
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
