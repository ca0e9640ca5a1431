"""The client's reading calls: `read`, `read_range`, `read_batches` and `read_arrow`."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Final

from anyio.abc import TaskGroup

from broker.client.batch import MessageBatch
from broker.client.cluster.collections import Collections
from broker.client.cluster.cursor import Cursor, NamedCursors
from broker.client.cluster.offsets import Offsets
from broker.client.cluster.targets import merged
from broker.client.errors import BadTarget
from broker.client.message import Batch
from broker.client.net.network import Network
from broker.client.read.batch_start import BatchStart, BatchUntil, plan_batches
from broker.client.read.batch_subscription import Only
from broker.client.read.cursor_reader import CursorReader
from broker.client.read.deliveries import Source
from broker.client.read.row_scanner import RowForm, RowScanner, schema_of_targets
from broker.client.read.scanner import BatchScanner, Scanner
from broker.client.read.start import ReadOptions, Start, Until, plan
from broker.model.ids import MessageId
from broker.model.named_cursor import ChannelPosition

if TYPE_CHECKING:
    import pyarrow as pa


PLACES: Final = ("all", "latest")
MISSPELT: Final = 0.8
"""Ratio of `difflib` from which a name is taken for a misspelt place; "lastest" has 0.92."""


class Readers:
    """Each call returns a scanner without asking the server; opening it resolves the positions."""

    def __init__(
        self,
        network: Network,
        tasks: TaskGroup,
        offsets: Offsets,
        collections: Collections,
        cursors: NamedCursors,
    ) -> None:
        self._cursors = cursors
        self._network = network
        self._tasks = tasks
        self._offsets = offsets
        self._collections = collections
        self._targets = collections.targets

    def read(
        self,
        target: str,
        *,
        start: Start | Mapping[str, Start] = "all",
        until: Until | None = None,
        types: Iterable[int] | None = None,
        with_ticks: bool = False,
        ignore_pause: bool = False,
    ) -> Scanner:
        """Read messages of a collection, a vchannel, or a whole pchannel.

            async for batch in log.read("trains", start="all", until="now"):
                for message in batch.messages:
                    print(message.payload)

        `start`: "all" (what the log holds), "latest" (what is appended after the reader was
        opened), a message id (of one vchannel), ("tick", n), a datetime or ("time", t) (messages of
        that time on; without a zone it is local), a cut (what comes after it), or a mapping from
        vchannel to these. Or `log.cursor(name)`, or just another name: what is not yet committed to
        that cursor, which is made at "all" if there is none. BadTarget for a misspelt "latest".
        OutOfRange where retention removed messages behind an id, a tick, a cut or the cursor.

        `until`: None (never ends), "now" (what is durable when the reader is opened), a cut, or a
        mapping from vchannel to the first id not to read. `types`: the message types to see, None
        for all that programs append. `with_ticks`: yield time ticks as messages too.
        `ignore_pause`: start even while an operator has paused consumption.
        """
        self._targets.names(target)
        wanted = None if types is None else frozenset(int(it) for it in types)
        options = ReadOptions(start, until, wanted, with_ticks, ignore_pause)
        return self._scanner(target, options, self._cursor_reader(start))

    def read_range(self, vchannel: str, start_id: int, end_id: int) -> Scanner:
        """Read the messages of one vchannel with ids in [start_id, end_id), or raise OutOfRange."""
        self._targets.names(vchannel)
        return self._scanner(vchannel, ReadOptions(start=start_id, until={vchannel: end_id}))

    def read_batches(
        self,
        target: str | Iterable[str],
        *,
        start: BatchStart = "all",
        until: BatchUntil | None = None,
        types: Iterable[int] = (),
        ignore_pause: bool = False,
    ) -> BatchScanner:
        """Read batches as they lie in the log, of a collection, a pchannel, or some vchannels.

        The fastest way to read: single messages are made only when asked for. `start`: "all",
        "latest", a message id (of one pchannel), ("tick", n), a datetime or ("time", t), a cut
        (what comes after it), or a cursor or its name, as for `read`; OutOfRange or Unrecoverable
        where retention removed messages behind an id, a tick, a cut or a cursor. `until`: None,
        "now", a time tick, or a cut; the read then ends and is complete. InvalidArgument for a
        tick from the future. `types`: the message types to see, none for all that programs
        append. `ignore_pause`: start even while an operator has paused consumption.
        """
        names = self._targets.names(target)
        only = Only(tuple([int(it) for it in types]), ignore_pause=ignore_pause)
        cursor = self._cursor_reader(start)
        sources = partial(self._batch_sources, names, (start, until), only, cursor)
        return BatchScanner(sources, self._tasks, cursor)

    def read_arrow(
        self,
        target: str | Iterable[str],
        *,
        columns: Iterable[str] | None = None,
        start: BatchStart = "all",
        until: BatchUntil | None = None,
        schema: "pa.Schema | None" = None,
    ) -> RowScanner:
        """Read the Arrow rows of a collection, or of some of its vchannels, as RecordBatches.

        Each has the `columns` in that order (None: all of the collection), then `_vchannel`,
        `_message_id` and `_time_tick`; `await scanner.schema()` is the schema of all. The broker
        sends no other columns. Rows from before a column was added have null in it. Messages that
        were not appended as Arrow are left out.

        `start`, `until`: as for `read_batches`. `schema`: the collection's, if known, to save a
        request. Raises BadTarget, at the first step, for a column that does not exist and for
        targets that are not of one collection with a schema.
        """
        names = self._targets.names(target)
        wanted = None if columns is None else list(columns)

        cursor = self._cursor_reader(start, rows=True)

        async def form() -> RowForm:
            return RowForm(schema or await schema_of_targets(self._collections, names), wanted)

        def sources(shape: RowForm) -> Awaitable[Sequence[Source[MessageBatch]]]:
            only = Only(rows=True, columns=shape.asked)
            return self._batch_sources(names, (start, until), only, cursor)

        return RowScanner(form, sources, self._tasks, cursor)

    def _scanner(
        self, target: str, options: ReadOptions, cursor: CursorReader | None = None
    ) -> Scanner:
        async def sources() -> Sequence[Source[Batch]]:
            shards = await self._targets.current(target)
            if cursor is None:
                return await plan(self._network, self._offsets, shards, options)
            positions = await self._positions(cursor, shards.vchannels)
            return await plan(
                self._network, self._offsets, shards, replace(options, start=positions)
            )

        return Scanner(sources, self._tasks, cursor)

    async def _batch_sources(
        self,
        names: Sequence[str],
        bounds: tuple[BatchStart, BatchUntil | None],
        only: Only,
        cursor: CursorReader | None,
    ) -> Sequence[Source[MessageBatch]]:
        shards = merged([await self._targets.current(name) for name in names])
        start, until = bounds
        positions = await self._positions(cursor, shards.vchannels) if cursor else start
        return await plan_batches(self._network, self._offsets, shards, (positions, until), only)

    def _cursor_reader(self, start: object, *, rows: bool = False) -> CursorReader | None:
        if isinstance(start, str) and start not in PLACES:
            _refuse_misspelt(start)
            start = self._cursors.named(start)
        return CursorReader(start, rows=rows) if isinstance(start, Cursor) else None

    async def _positions(
        self, cursor: CursorReader, vchannels: Sequence[str]
    ) -> Mapping[str, ChannelPosition]:
        async def first_ids() -> Mapping[str, MessageId]:
            held = await self._offsets.describe(vchannels)
            return {name: it.first_id for name, it in held.items()}

        return await cursor.open(vchannels, first_ids)


def _refuse_misspelt(start: str) -> None:
    """A misspelt "latest" would silently make a cursor, and read all."""
    near = get_close_matches(start.casefold(), PLACES, n=1, cutoff=MISSPELT)
    if near:
        raise BadTarget(
            f"start={start!r}: did you mean {near[0]!r}? For a cursor of that name pass"
            f" start=log.cursor({start!r})"
        )
