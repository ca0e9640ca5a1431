"""What `read_arrow` returns: an async iterator of Arrow RecordBatches that all have one schema.

Stored batches may differ: a column may be missing in those from before it was added. Here they get
the same columns in the same order, null where missing, and the vchannel, id and tick of each row.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from anyio.abc import TaskGroup

from broker.client.batch import MessageBatch
from broker.client.cluster.collections import Collections
from broker.client.cluster.cursor import COMMIT_S
from broker.client.errors import BadTarget, TidemarkError
from broker.client.read.cursor_reader import CursorReader
from broker.client.read.deliveries import Source, UnackedBatch
from broker.client.read.scanner import BatchScanner
from broker.model.ids import TimeTick
from schemas.arrow.columns import arrow
from schemas.arrow.ipc import BadArrow
from schemas.arrow.values import counted, number, text

VCHANNEL, MESSAGE_ID, TIME_TICK = "_vchannel", "_message_id", "_time_tick"
"""The last columns of every batch: a string, and two 64-bit integers."""


class RowForm:
    """The schema of one reader's batches. Raises BadTarget for a column that does not exist."""

    def __init__(self, schema: Any, columns: Sequence[str] | None) -> None:
        pa = _arrow()
        names = schema.names if columns is None else list(columns)
        strange = [name for name in names if name not in schema.names]
        if strange or len(set(names)) < len(names):
            raise BadTarget(
                f"columns {strange or names} cannot be read; there are {schema.names}, each once"
            )
        self.asked = tuple(names)
        """The columns to request. For none the server sends all, which are dropped here."""
        # Nullable in any case: rows from before a column was added have null there.
        self._own = pa.schema([schema.field(name).with_nullable(True) for name in names])
        ours = [(VCHANNEL, pa.string()), (MESSAGE_ID, pa.int64()), (TIME_TICK, pa.int64())]
        self.schema = pa.schema([*self._own, *[pa.field(*it, nullable=False) for it in ours]])

    def shaped(self, batches: Sequence[MessageBatch], rows: Iterable[Any]) -> Any:
        """The rows of one or more batches, in their order, as one RecordBatch of `schema`."""
        pa = _arrow()
        parts = list(map(self._columns, rows))
        own = parts[0]
        if len(parts) > 1:
            (own,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
        added = [
            [pa.repeat(text(it.vchannel), len(it)) for it in batches],
            [_numbers(it.ids) for it in batches],
            [_numbers(it.ticks) for it in batches],
        ]
        columns = [*own.columns, *map(_one, added)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _columns(self, rows: Any) -> Any:
        """The rows with exactly the columns that are read."""
        if rows.schema.equals(self._own):
            return rows
        pa, names = _arrow(), rows.schema.names
        columns = [
            rows.column(field.name) if field.name in names else pa.nulls(rows.num_rows, field.type)
            for field in self._own
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._own)


class RowScanner:
    """`async for rows in scanner`: RecordBatches of one vchannel each, in the order of its ticks.

    Otherwise as `read_batches`: opens at the first step, reopens broken streams, and ends only at
    `until`. Use it from one task at a time, but for `done` and `close`.
    """

    def __init__(
        self,
        form: Callable[[], Awaitable[RowForm]],
        plan: Callable[[RowForm], Awaitable[Sequence[Source[MessageBatch]]]],
        tasks: TaskGroup,
        cursor: CursorReader | None = None,
    ) -> None:
        self._find_form = form
        self._cursor = cursor
        self._form: RowForm | None = None
        # Not that of `_batches`, which counts a batch as taken before its rows are decoded.
        self._closed_tick = TimeTick(0)

        async def subscriptions() -> Sequence[Source[MessageBatch]]:
            return await plan(await self._shape())

        self._batches = BatchScanner(subscriptions, tasks, cursor)

    async def schema(self) -> Any:
        """The `pyarrow.Schema` of every batch."""
        return (await self._shape()).schema

    @property
    def closed_tick(self) -> TimeTick:
        """No row with a tick up to it is still to come, as of `read_batches`; 0: unknown."""
        return self._closed_tick

    @property
    def error(self) -> TidemarkError | None:
        """The error that ended the read; None while it runs, at its end, and after `close`."""
        return self._batches.error

    async def open(self) -> None:
        """Fix the start positions and begin to read ahead; no-op when open already."""
        await self._batches.open()

    async def done(self) -> None:
        """Return once nothing more is read; the last batches may not have been taken yet."""
        await self._batches.done()

    async def close(self) -> None:
        """End the streams; raises nothing, and may be called again."""
        await self._batches.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while True:
            unacked = await self._batches.step()
            # Does not wait, since opening has found the form: a cancelled step loses no batch here.
            form = await self._shape()
            batch = unacked.batch
            if not batch.has_rows:
                self._batches.taken(unacked)
                self._closed_tick = self._batches.closed_tick
                continue
            shaped = form.shaped([batch], [batch.rows()])
            self._give(shaped, [unacked])
            return shaped

    async def gathered(self, rows_min: int, bytes_min: int) -> Any:
        """The next RecordBatch of at least `rows_min` rows or `bytes_min` bytes.

        Only for a bounded read, where only the last one may be smaller; an unbounded read would
        wait for more. A cancelled call loses the batches it had taken.
        """
        taken: list[UnackedBatch[MessageBatch]] = []
        rows: list[Any] = []
        try:
            while rows_min > 0 and bytes_min > 0:
                unacked = await self._batches.step()
                if not unacked.batch.has_rows:
                    self._batches.taken(unacked)
                    continue
                taken.append(unacked)
                rows.append(unacked.batch.rows())
                rows_min -= len(unacked.batch)
                # Constant time, where `nbytes` adds up slices.
                bytes_min -= rows[-1].get_total_buffer_size()
        except (StopAsyncIteration, TidemarkError):
            if not taken:
                raise  # otherwise the next step raises it again, behind these rows
        shaped = (await self._shape()).shaped([it.batch for it in taken], rows)
        self._give(shaped, taken)
        return shaped

    async def commit(self, *, deadline_s: float = COMMIT_S) -> None:
        """Commit all rows that the program has got; see `Reading.commit`."""
        await self._batches.commit(deadline_s=deadline_s)

    def _give(self, shaped: Any, taken: Sequence[UnackedBatch[MessageBatch]]) -> None:
        for unacked in taken:
            self._batches.taken(unacked)
        self._closed_tick = self._batches.closed_tick
        if self._cursor is not None:
            marks = [it.batch.mark for it in taken if it.batch.mark is not None]
            self._cursor.cursor.rows_given.add(shaped, marks)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _shape(self) -> RowForm:
        if self._form is None:
            self._form = await self._find_form()
        return self._form


async def schema_of_targets(collections: Collections, names: Iterable[str]) -> Any:
    """The schema of the one collection that all names belong to. Raises BadTarget."""
    wanted = list(names)
    found = {(await collections.targets.current(name)).rows_of for name in wanted}
    name = found.pop() if len(found) == 1 else None
    if name is None:
        raise BadTarget(
            f"{wanted} do not belong to one collection with a schema; create one with"
            " collections.create(name, schema=...), or pass the schema"
        )
    _arrow()
    return await collections.schema(name)


def _arrow() -> Any:
    try:
        return arrow()
    except BadArrow as error:
        raise BadTarget(str(error)) from None


def _one(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else arrow().concat_arrays(parts)


def _numbers(numbers: Sequence[int]) -> Any:
    """An array of consecutive numbers, or of one number repeated (ticks of a transaction)."""
    if len(numbers) > 1 and numbers[0] == numbers[-1]:
        return arrow().repeat(number(numbers[0]), len(numbers))
    return counted(numbers[0], len(numbers))
