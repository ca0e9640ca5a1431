"""`tidemark produce`: appends lines or typed rows from files or stdin, in order.

Holds one chunk of input and one batch at a time, whatever the size of the input. A batch is stored
before the next one is made, so what is stored is the beginning of the input, up to one batch.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio

from broker.cli.produce.input_file import BadInput, InputFile, Place, opened
from broker.cli.produce.interrupts import Interrupts, interrupts
from broker.cli.produce.lines import Lines, keys_of, line_chunks
from broker.cli.produce.progress import progress
from broker.cli.produce.row_files import RowFormat, Rows, read_rows
from broker.cli.produce.tally import Tally
from broker.cli.session import INTERRUPTED, USAGE, fail, with_client
from broker.cli.standard_streams import end_on_closed_pipe, exit_at_once
from broker.client import Appended, AppendedBatch, AppendsFailed, Client, Message
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import BadTarget, OutcomeUnknown


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """What to append, and where. No `files`, or `-`: stdin. `txn`: batches are transactions.

    `format`: None for lines that become messages. `skip`: lines, or rows, of the first file to
    leave out. `new`: the target is a vchannel that need not exist.
    """

    target: str
    files: tuple[Path, ...] = ()
    key: str | None = None
    batch: int = 1000
    txn: bool = False
    format: str | None = None
    skip: int = 0
    new: bool = False
    partition: str | None = None
    deliver_at: datetime | None = None
    ttl_s: float | None = None


def produce_input(server: str, options: ProduceOptions, *, as_json: bool) -> None:
    """Append all of the input, then print how much and how fast.

    Errors and Ctrl-C say how much is stored, and where to go on.
    """
    if options.txn and options.format:
        fail("--txn is for lines; rows are stored whole or not at all in batches", USAGE)
    if options.deliver_at and options.format:
        fail("--deliver-at is for lines; groups get rows at once", USAGE)
    by_arrow = options.format not in (None, RowFormat.JSONL)
    with exit_at_once() if by_arrow else nullcontext():
        _produce(server, options, as_json=as_json)


def _produce(server: str, options: ProduceOptions, *, as_json: bool) -> None:
    tally = Tally("row" if options.format else "message")

    async def produce(client: Client) -> int | None:
        with interrupts() as signals:
            await _Producing(client, options, tally, signals).run(sources)
            return signals.code

    try:
        with opened(options.files) as sources:
            code = with_client(server, produce, failed=tally.say)
    except BadInput as error:
        if not tally.started_s:
            fail(str(error), USAGE)
        fail(tally.say(str(error)))
    except SystemExit as ended:
        # Ctrl-C before the signals were handled: while the client was connecting.
        if ended.code == INTERRUPTED:
            sys.stderr.write(f"tidemark: {tally.say('interrupted')}\n")
        raise
    if code is not None:
        fail(tally.say("interrupted"), code)
    with end_on_closed_pipe():
        sys.stdout.write(tally.json() if as_json else tally.line())


class _Producing:
    """One run, of which `tally` always says how far it is."""

    def __init__(
        self, client: Client, options: ProduceOptions, tally: Tally, signals: Interrupts
    ) -> None:
        self._client = client
        self._options = options
        self._tally = tally
        self._signals = signals
        self._target = NewVChannel(options.target) if options.new else options.target

    async def run(self, sources: list[InputFile]) -> None:
        """Append the input until its end or a signal. Raises BadInput, TidemarkError."""
        tally, signals = self._tally, self._signals
        # Also without any input: a name of nothing must not look like success.
        append = await self._appends()
        tally.started_s = tally.ended_s = anyio.current_time()
        tally.rest = [it.name for it in sources]
        skip = self._options.skip
        with progress(sources) as advance:
            for source in sources:
                signals.source = source
                if source.is_terminal:
                    sys.stderr.write("tidemark: reading from the terminal; Ctrl-D ends the input\n")
                async for _ in append(source, skip):
                    advance()
                    # Here, so that the wait for the end of the input is not counted.
                    tally.ended_s = anyio.current_time()
                    if signals.code is not None:
                        return
                if signals.code is not None:
                    return
                skip, tally.place, tally.rest = 0, None, tally.rest[1:]

    async def _appends(self) -> Callable[[InputFile, int], AsyncIterator[None]]:
        """How a file is appended, a batch for each step."""
        schema = await self._schema()
        if self._options.format is None:
            if schema is not None:
                raise BadTarget(
                    f"{self._target!r} has a schema and takes rows, not messages: say how the input"
                    " is written, --format jsonl, csv, parquet or arrow"
                )
            return self._append_lines
        if schema is None:
            raise BadTarget(
                f"{self._target!r} has no schema, so it takes messages, not rows: leave --format"
                " out, or make a collection with `tidemark collection create --schema FILE`"
            )
        kind = RowFormat(self._options.format)

        async def append_rows(source: InputFile, skip: int) -> AsyncIterator[None]:
            async for rows in read_rows(source, kind, schema, skip):
                await self._append_rows(rows)
                yield

        return append_rows

    async def _schema(self) -> Any:
        """The schema of the target; None when it takes messages."""
        collections = self._client.collections
        name = (await collections.targets.current(self._target)).rows_of
        # Without a schema it needs no pyarrow.
        return None if name is None else await collections.schema(name)

    async def _append_lines(self, source: InputFile, skip: int) -> AsyncIterator[None]:
        size = self._options.batch
        async for chunk in line_chunks(source, skip):
            for first in range(0, len(chunk.lines), size):
                await self._append_messages(chunk.part(first, min(first + size, len(chunk.lines))))
                yield

    async def _append_messages(self, part: Lines) -> None:
        tally, lines = self._tally, part.kept()
        keys = keys_of(part, self._options.key) or [None] * len(lines)
        messages = [Message(line, key=key) for line, key in zip(lines, keys, strict=True)]
        if messages:
            atomic = self._options.txn
            landed = await self._stored(
                self._client.append_messages(
                    self._target,
                    messages,
                    atomic=atomic,
                    partition=self._options.partition,
                    deliver_at=self._options.deliver_at,
                    ttl_s=self._options.ttl_s,
                ),
                len(messages),
            )
            if atomic and landed:
                tally.transactions += len({(it.vchannel, it.tick) for it in landed})
        tally.bytes += sum(map(len, lines))
        self._stored_to(part.end, len(messages))

    async def _append_rows(self, rows: Rows) -> None:
        count = rows.table.num_rows
        append = self._client.append_arrow(
            self._target,
            rows.table,
            key=self._options.key,
            partition=self._options.partition,
            ttl_s=self._options.ttl_s,
        )
        if await self._stored(append, count) is not None:
            self._tally.bytes += rows.table.nbytes
            self._stored_to(rows.end, count)

    def _stored_to(self, place: Place, count: int) -> None:
        if not self._tally.doubtful:
            self._tally.messages += count
            self._tally.place = place

    async def _stored(self, append: Awaitable[list[Any]], count: int) -> list[Any] | None:
        """The results; None when a second signal ended the wait, and the outcome is not known."""
        tally, signals = self._tally, self._signals
        signals.under_way = True
        try:
            with signals.scope:
                return await append
        except AppendsFailed as error:
            tally.beyond = sum(_count(it) for it in error.results)
            tally.messages += tally.beyond
            if any(isinstance(it, OutcomeUnknown) for it in error.results):
                tally.doubtful = count - tally.beyond
            raise
        except OutcomeUnknown:
            tally.doubtful = count
            raise
        finally:
            signals.under_way = False
        tally.doubtful = count
        return None


def _count(result: object) -> int:
    if isinstance(result, AppendedBatch):
        return result.messages
    return int(isinstance(result, Appended))
