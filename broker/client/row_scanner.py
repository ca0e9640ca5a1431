"""What `read_arrow` gives: an async iterator of Arrow RecordBatches that all have one schema.

It owns the shape of the batches: the order of the columns, null for those a batch has not, and
what is known of each row beside its columns. Next: broker/client/scanner.py
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

from anyio.abc import TaskGroup

from broker.client.batch import MessageBatch
from broker.client.batch_subscription import BatchSubscription
from broker.client.collections import Collections
from broker.client.errors import BadTarget, TidemarkError
from broker.client.scanner import BatchScanner
from broker.core.naming import collection_id_of
from broker.model.ids import TimeTick
from schemas.arrow_columns import arrow, decode_schema
from schemas.arrow_ipc import BadArrow

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
        self._fields = [schema.field(name).with_nullable(True) for name in names]
        ours = [(VCHANNEL, pa.string()), (MESSAGE_ID, pa.int64()), (TIME_TICK, pa.int64())]
        self.schema = pa.schema([*self._fields, *[pa.field(*it, nullable=False) for it in ours]])

    def shaped(self, batch: MessageBatch) -> Any:
        """The rows of a batch as a RecordBatch of `schema`."""
        pa = _arrow()
        rows, count = batch.rows(), len(batch)
        given = {name: rows.column(at) for at, name in enumerate(rows.schema.names)}
        columns = [
            given[field.name] if field.name in given else pa.nulls(count, field.type)
            for field in self._fields
        ]
        columns += [
            pa.repeat(pa.scalar(batch.vchannel), count),
            _counted(batch.ids[0], count),
            _ticks(batch, count),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class RowScanner:
    """`async for rows in scanner`: RecordBatches of one vchannel each, in the order of its ticks.

    Otherwise as `read_batches`: it opens at the first step, resumes by itself, and ends only where
    `until` says. Not for two tasks at once, but for `done` and `close`.
    """

    def __init__(
        self,
        form: Callable[[], Awaitable[RowForm]],
        plan: Callable[[RowForm], Awaitable[Sequence[BatchSubscription]]],
        tasks: TaskGroup,
    ) -> None:
        self._find_form = form
        self._form: RowForm | None = None
        self._closed_tick = TimeTick(0)

        async def subscriptions() -> Sequence[BatchSubscription]:
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
            rows = (await self._shape()).shaped(batch) if batch.has_rows else None
            self._closed_tick = self._batches.closed_tick
            if rows is not None:
                return rows

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


def _counted(first: int, count: int) -> Any:
    pa = arrow()
    return pa.compute.add(_counting(count), pa.scalar(first, pa.int64()))


def _ticks(batch: MessageBatch, count: int) -> Any:
    """Those of a transaction are all one."""
    first, last = batch.ticks[0], batch.ticks[-1]
    if count > 1 and first == last:
        pa = arrow()
        return pa.repeat(pa.scalar(first, pa.int64()), count)
    return _counted(first, count)


@lru_cache(maxsize=64)
def _counting(count: int) -> Any:
    pa = arrow()
    return pa.array(range(count), pa.int64())
