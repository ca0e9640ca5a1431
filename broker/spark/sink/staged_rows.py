"""Stages the rows of a task in the log, where nobody reads them before the commit.

Small batches of rows are joined into lots, and one lot is appended while Spark makes the next, so
at most two lots are in memory. Every wait ends after `SinkOptions.timeout_s`: each lot's, and the
commit's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from secrets import randbits
from typing import Final, TypeVar

import anyio
import pyarrow as pa

from broker.client import Client, DeadlineExceeded, Message, Stage, StagedPart, TidemarkError
from broker.core.naming import collection_id_of
from broker.core.sharding import shard_of
from broker.model.ids import VChannelName
from broker.model.stage import StageName
from broker.spark.gateway import PATIENCE_S, UNREACHABLE_S, Gateway, gateway_here
from broker.spark.sink import repeats
from broker.spark.sink.sink_columns import MessageColumns, Messages, RowColumns
from broker.spark.sink.sink_options import SinkOptions

ATTEMPT_BITS: Final = 40
LOT_ROWS: Final = 16_384
LOT_BYTES: Final = 2 * 1024 * 1024
BATCH_MESSAGES: Final = 8192
RUN_ROWS: Final = 16
"""Average length of a run worth a batch: runs wait for each other, single messages do not."""
BATCH_BYTES: Final = 1024 * 1024
GRACE_S: Final = 10.0
"""After the deadline plus this, a call on the client's loop has ended, or the loop is dead."""

T = TypeVar("T")

log = logging.getLogger("tidemark.spark")


def stage(
    options: SinkOptions, name: StageName, rows: Iterator[pa.RecordBatch], *, proven: bool = False
) -> StagedPart:
    """Stage all rows of a task; return what the driver needs to commit them.

    `proven`: earlier tasks have written, so a server that is silent, or a node that cannot be
    reached, is only away.

    Spark may reuse `name.attempt`, so it is replaced by a number that no other attempt has. Rows
    that an earlier run or attempt has staged are aborted: when Spark starts a copy of a slow task,
    the slow one fails.
    """
    gateway = gateway_here(options.server)
    gateway.proven = gateway.proven or proven

    async def begin(client: Client) -> Stage:
        attempt = name.attempt << ATTEMPT_BITS | randbits(ATTEMPT_BITS)
        place = (name.app, name.batch, name.part, attempt)
        made = client.stage(*place, run=name.run, deadline_s=options.timeout_s)
        made.unreachable_s = PATIENCE_S if proven else UNREACHABLE_S
        return made

    task = _Task(gateway, options, _waited(gateway, begin, options.timeout_s))
    try:
        for each in rows:
            task.take(each)
        return task.seal()
    except BaseException:
        task.abort()
        raise


def commit(options: SinkOptions, parts: Sequence[StagedPart], *, of_stream: bool) -> None:
    """Make all of it visible, once. Raises OutcomeUnknown when it may still take effect."""
    if not parts:
        return
    app, batch = parts[0].app, parts[0].batch
    gateway = gateway_here(options.server)
    gateway.proven = True  # by the tasks: when the server is silent, it is only away

    async def ask(client: Client) -> None:
        done = await client.commit_batch(app, batch, parts, deadline_s=options.timeout_s)
        repeats.tell(done, batch, of_stream=of_stream)

    _waited(gateway, ask, options.timeout_s)


def abort(options: SinkOptions, parts: Sequence[StagedPart]) -> None:
    """Abort what is not committed; what cannot be reached now expires."""
    if not parts:
        return

    async def ask(client: Client) -> None:
        await client.abort_batch(parts, deadline_s=options.timeout_s)

    try:
        _waited(gateway_here(options.server), ask, options.timeout_s)
    except TidemarkError as error:
        batch = parts[0].batch
        log.warning("cannot abort the staged rows of batch %d; they expire later: %s", batch, error)


class _Task:
    """One attempt of a task: takes rows, with one lot being appended."""

    def __init__(self, gateway: Gateway, options: SinkOptions, stage: Stage) -> None:
        self._gateway = gateway
        self._options = options
        self._stage = stage
        self._held: list[pa.RecordBatch] = []
        self._columns: RowColumns | MessageColumns | None = None
        self._under_way: Future[None] | None = None

    def take(self, rows: pa.RecordBatch) -> None:
        """Take rows. Raises BadColumns, BadRow, and the error of an earlier lot."""
        if not rows.num_rows:
            return
        self._held.append(rows)
        enough = sum(each.num_rows for each in self._held) >= LOT_ROWS
        if enough or sum(each.nbytes for each in self._held) >= LOT_BYTES:
            self._send()

    def seal(self) -> StagedPart:
        """Wait until all rows are durable."""
        if self._held:
            self._send()
        self._settle()

        async def ask(_: Client) -> StagedPart:
            return await self._stage.seal()

        return _waited(self._gateway, ask, self._options.timeout_s)

    def abort(self) -> None:
        """Abort what was staged, if the broker can be reached; the task has failed anyway."""
        if self._under_way is not None:
            self._under_way.cancel()

        async def ask(_: Client) -> None:
            await self._stage.discard()

        try:
            _waited(self._gateway, ask, self._options.timeout_s)
        except (TidemarkError, TimeoutError) as error:
            log.warning("cannot abort the staged rows of a task; they expire later: %s", error)

    def _send(self) -> None:
        lot = pa.Table.from_batches(self._held).combine_chunks().to_batches()
        self._held = []
        if self._columns is None:
            self._columns = self._fitting(lot[0].schema)
        # Prepared before the wait: the previous lot is still being appended meanwhile.
        work = [self._work(self._columns, each) for each in lot]
        self._settle()
        timeout_s = self._options.timeout_s

        async def append(client: Client) -> None:
            with anyio.fail_after(timeout_s):
                for each in work:
                    await each(client)

        self._under_way = self._gateway.begin(append)

    def _settle(self) -> None:
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            _result(under_way, self._options.timeout_s)

    def _fitting(self, given: pa.Schema) -> RowColumns | MessageColumns:
        topic, key = self._options.topic, self._options.key
        wanted = _schema_of(self._gateway, topic) if topic else None
        if wanted is None:
            return MessageColumns(given, topic, key)
        return RowColumns(given, wanted, topic, key)

    def _work(
        self, columns: RowColumns | MessageColumns, lot: pa.RecordBatch
    ) -> Callable[[Client], Awaitable[None]]:
        """Prepare the appends of a lot here, so that CPU work stays off the client's loop."""
        options = self._options
        partition, ttl_s = options.partition, options.ttl_s
        if isinstance(columns, RowColumns):
            rows = columns.rows(lot)

            async def append_rows(_: Client) -> None:
                topic, key = options.topic, options.key
                await self._stage.append_arrow(
                    topic, rows, key=key, partition=partition, ttl_s=ttl_s
                )

            return append_rows
        runs = list(columns.messages(lot))
        if len(runs) > lot.num_rows // RUN_ROWS + 1:
            singles, timeout_s = _singles(runs), options.timeout_s

            async def append_singles(_: Client) -> None:
                for target, messages in singles.items():
                    await self._stage.append_messages(
                        target,
                        messages,
                        partition=partition,
                        ttl_s=ttl_s,
                        deadline_s=timeout_s,
                    )

            return append_singles

        async def append_runs(client: Client) -> None:
            for run in runs:
                await _append_run(client, self._stage, run, options)

        return append_runs


def _schema_of(gateway: Gateway, topic: str) -> pa.Schema | None:
    """Return the schema of the collection with this name or vchannel; None when it has none."""
    for each in gateway.collections():
        if topic == each.name or each.id == collection_id_of(VChannelName(topic)):
            return gateway.columns(each.name) if each.schema else None
    return None


def _singles(runs: Sequence[Messages]) -> dict[str, list[Message]]:
    """Return messages with different properties or targets, by target, in their order."""
    found: dict[str, list[Message]] = {}
    for run in runs:
        keys = run.keys or [None] * len(run.payloads)
        for payload, key in zip(run.payloads, keys, strict=True):
            found.setdefault(run.target, []).append(Message(payload, key, run.properties))
    return found


async def _append_run(client: Client, stage: Stage, run: Messages, options: SinkOptions) -> None:
    """Append each message to the shard of its key; those without one go round robin, together."""
    vchannels = (await client.collections.resolve([run.target]))[run.target]
    places = _places(run, vchannels)
    appends = [
        _append_in_order(stage, target, run, rows, options) for target, rows in places.items()
    ]
    # All have ended before an error is raised: the stage is aborted then, and must not grow any
    # more.
    for result in await asyncio.gather(*appends, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _places(run: Messages, vchannels: Sequence[str]) -> dict[str, Sequence[int]]:
    everything = range(len(run.payloads))
    if run.keys is None or len(vchannels) == 1:
        return {run.target: everything}
    places: dict[str, list[int]] = {}
    for index, key in enumerate(run.keys):
        target = run.target if key is None else vchannels[shard_of(key, len(vchannels))]
        places.setdefault(target, []).append(index)
    return dict(places)


async def _append_in_order(
    stage: Stage, target: str, run: Messages, indexes: Sequence[int], options: SinkOptions
) -> None:
    for chunk in _chunks(run.payloads, indexes):
        keys = None if run.keys is None else [run.keys[index] for index in chunk]
        if keys is not None and not any(key is not None for key in keys):
            keys = None
        payloads = [run.payloads[index] for index in chunk]
        await stage.append_batch(
            target,
            payloads,
            keys=keys,
            properties=run.properties,
            partition=options.partition,
            ttl_s=options.ttl_s,
        )


def _chunks(payloads: Sequence[bytes], indexes: Sequence[int]) -> Iterator[list[int]]:
    chunk: list[int] = []
    size = 0
    for index in indexes:
        if chunk and (size + len(payloads[index]) > BATCH_BYTES or len(chunk) == BATCH_MESSAGES):
            yield chunk
            chunk, size = [], 0
        chunk.append(index)
        size += len(payloads[index])
    if chunk:
        yield chunk


def _waited(gateway: Gateway, ask: Callable[[Client], Awaitable[T]], timeout_s: float) -> T:
    return _result(gateway.begin(ask), timeout_s)


def _result(asked: "Future[T]", timeout_s: float) -> T:
    try:
        return asked.result(timeout_s + GRACE_S)
    except TimeoutError as error:
        # Either this wait ran out, or the call's own deadline, which raises the same error.
        asked.cancel()
        raise DeadlineExceeded(f"the broker did not answer within {timeout_s:g} s") from error
