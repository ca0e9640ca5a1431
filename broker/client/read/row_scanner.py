"""What `read_arrow` gives: an async iterator of Arrow RecordBatches that all have one schema.

It owns the shape of the batches: the order of the columns, null for those a batch has not, and
what is known of each row beside its columns. Next: broker/client/read/scanner.py
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from anyio.abc import TaskGroup

from broker.client.batch import MessageBatch
from broker.client.cluster.collections import Collections
from broker.client.errors import BadTarget, TidemarkError
from broker.client.read.deliveries import Source
from broker.client.read.scanner import BatchScanner
from broker.core.naming import collection_id_of
from broker.model.ids import TimeTick
from schemas.arrow.columns import arrow, decode_schema
from schemas.arrow.ipc import BadArrow
from schemas.arrow.values import counted, number, text

VCHANNEL, MESSAGE_ID, TIME_TICK = "_vchannel", "_message_id", "_time_tick"
"""The columns that every batch has at its end: a text, and two whole numbers of 64 bits."""


class RowForm:
    """How the batches of one reader look. Raises BadTarget for a column that is not there."""

    def __init__(self, schema: Any, columns: Sequence[str] | None) -> None:
        pa = _arrow()
        names = schema.names if columns is None else list(columns)
        strange = [name for name in names if name not in schema.names]
        if strange or len(set(names)) < len(names):
            raise BadTarget(
                f"columns {strange or names} cannot be read; there are {schema.names}, each once"
            )
        self.asked = tuple(names)
        """The columns to ask a server for. With none of them it sends all, which are cut here."""
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
        """Those that are read, in their order, whatever the rows have."""
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

    Otherwise as `read_batches`: it opens at the first step, resumes by itself, and ends only where
    `until` says. Not for two tasks at once, but for `done` and `close`.
    """

    def __init__(
        self,
        form: Callable[[], Awaitable[RowForm]],
        plan: Callable[[RowForm], Awaitable[Sequence[Source[MessageBatch]]]],
        tasks: TaskGroup,
    ) -> None:
        self._find_form = form
        self._form: RowForm | None = None
        self._closed_tick = TimeTick(0)

        async def subscriptions() -> Sequence[Source[MessageBatch]]:
            return await plan(await self._shape())

        self._batches = BatchScanner(subscriptions, tasks)

    async def schema(self) -> Any:
        """The `pyarrow.Schema` of every batch."""
        return (await self._shape()).schema

    @property
    def closed_tick(self) -> TimeTick:
        """Nothing with a tick up to it is still to come, as of `read_batches`; 0: not known."""
        return self._closed_tick

    @property
    def error(self) -> TidemarkError | None:
        """Why it ended: None while it goes on, after its own end, and after `close`."""
        return self._batches.error

    async def open(self) -> None:
        """Fix the start positions and begin to read ahead; a second time it does nothing."""
        await self._batches.open()

    async def done(self) -> None:
        """Return once nothing more is read; the last batches may still wait to be taken."""
        await self._batches.done()

    async def close(self) -> None:
        """End the streams; always returns, and may be called again."""
        await self._batches.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while True:
            batch = await anext(self._batches)
            form = await self._shape()
            shaped = form.shaped([batch], [batch.rows()]) if batch.has_rows else None
            self._closed_tick = self._batches.closed_tick
            if shaped is not None:
                return shaped

    async def gathered(self, rows_min: int, bytes_min: int) -> Any:
        """One RecordBatch of at least so many rows, or of rows of at least so many bytes.

        For a reader with an end, where only the last one may be smaller: others would wait. A step
        that is cancelled loses what it had.
        """
        batches: list[MessageBatch] = []
        rows: list[Any] = []
        try:
            while rows_min > 0 and bytes_min > 0:
                batch = await anext(self._batches)
                if batch.has_rows:
                    batches.append(batch)
                    rows.append(batch.rows())
                    rows_min -= len(batch)
                    bytes_min -= rows[-1].get_total_buffer_size()
        except (StopAsyncIteration, TidemarkError):
            if not batches:
                raise  # else it comes again with the next step
        shaped = (await self._shape()).shaped(batches, rows)
        self._closed_tick = self._batches.closed_tick
        return shaped

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
    """The schema of the one collection that all the names are of. Raises BadTarget."""
    known = await collections.list()
    found = {
        each.id: each
        for name in names
        for each in known
        if each.name == name or each.id == collection_id_of(name)
    }
    schemas = [each.schema for each in found.values() if each.schema is not None]
    if len(found) != 1 or not schemas:
        raise BadTarget(
            f"{list(names)} are not of one collection with a schema; create one with"
            " collections.create(name, schema=...), or pass the schema"
        )
    _arrow()
    return decode_schema(schemas[0].arrow)


def _arrow() -> Any:
    try:
        return arrow()
    except BadArrow as error:
        raise BadTarget(str(error)) from None


def _one(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else arrow().concat_arrays(parts)


def _numbers(numbers: Sequence[int]) -> Any:
    """An array of what counts up by one, or of one and the same: the ticks of a transaction."""
    if len(numbers) > 1 and numbers[0] == numbers[-1]:
        return arrow().repeat(number(numbers[0]), len(numbers))
    return counted(numbers[0], len(numbers))
