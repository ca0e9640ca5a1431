"""`tidemark consume`: writes messages to stdout, one per line, until the pipe is closed."""

import select
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import compress

import anyio

from broker.cli.groups.group_consuming import take_as_member
from broker.cli.lines.message_filter import BadFilter, Filter, message_filter
from broker.cli.lines.message_lines import BadFormat, Lines, message_lines
from broker.cli.lines.stdout_writer import StdoutWriter
from broker.cli.session import USAGE, fail, with_client
from broker.cli.standard_streams import end_on_closed_pipe
from broker.cli.start_text import place_of
from broker.client import Client, MessageBatch, TidemarkError
from broker.client.errors import BadTarget, NoSuchCollection
from broker.client.net.until_first import until_first
from broker.client.read.batch_start import BatchStart, BatchUntil
from broker.client.read.scanner import BatchScanner

LOOK_EVERY_S = 0.2
COMMIT_EVERY_S = 1.0
COMMIT_AT_END_S = 5.0
PAUSED = (
    "consumption is paused: waiting for `tidemark consumption resume`; pass --ignore-pause to"
    " read now"
)


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """What to read and how to write it."""

    target: str
    start: str = "all"
    limit: int | None = None
    until_now: bool = False
    format: str = "json"
    filters: tuple[str, ...] = ()
    count: bool = False
    ignore_pause: bool = False
    cursor: str = ""
    group: str = ""


def consume_messages(server: str, options: ConsumeOptions) -> None:
    """Write messages until the limit, Ctrl-C or a closed pipe; each of them is a success.

    With `count` the number of messages is written at the end instead. With `cursor` reading begins
    where that cursor is, and what was written is committed to it.
    """
    if options.cursor and (options.start != "all" or options.count):
        fail(
            "--cursor says where to start, and is for lines that are written: leave out --from and"
            " --count; `tidemark cursors reset` sets a cursor to another place",
            USAGE,
        )
    if options.group and (options.cursor or options.until_now or options.ignore_pause):
        fail(
            "--group shares what is left with its other members: leave out --cursor, --until-now"
            " and --ignore-pause",
            USAGE,
        )
    start = place_of(options.start, "--from", ids=not options.group)
    output = Output(options)

    async def consume(client: Client) -> None:
        await until_first(
            lambda: _read_all(client, start, options, output),
            _reader_gone,
            lambda: _warn_of_pause(client, options),
        )

    with end_on_closed_pipe():
        try:
            with_client(server, consume, interrupted=0)
        except SystemExit as ended:
            if ended.code:
                raise
        if options.count:
            sys.stdout.write(f"{output.messages}\n")


class Output:
    """Filters, counts and writes batches, up to the limit."""

    def __init__(self, options: ConsumeOptions) -> None:
        """Ends the program when the format or a filter is wrong, before anything is read."""
        self.messages = 0
        self.ended_at: int | None = None
        """Which message of the last batch reached the limit."""
        self._limit = options.limit
        self._lines: Lines
        self._wanted: Filter | None
        try:
            self._lines = message_lines(options.format)
            self._wanted = message_filter(options.filters)
        except (BadFormat, BadFilter) as error:
            fail(str(error), USAGE)
        self._writer = None if options.count else StdoutWriter(sys.stdout.fileno())

    async def take(self, batch: MessageBatch) -> bool:
        """Write the batch's messages that are wanted; whether the limit is reached."""
        mask = None if self._wanted is None or not batch else self._wanted(batch)
        found = len(batch) if mask is None else sum(mask)
        if not found:
            return False
        left = found if self._limit is None else min(found, self._limit - self.messages)
        self.messages += left
        if self.messages == self._limit:
            places = range(len(batch)) if mask is None else [*compress(range(len(batch)), mask)]
            self.ended_at = places[left - 1]
        if self._writer is not None:
            # Each batch at once: a program behind the pipe that waits for the next message must
            # have all earlier ones.
            lines = self._lines(batch, mask)[:left]
            await self._writer.write(b"\n".join(lines) + b"\n")
        return self.messages == self._limit


async def _read_all(
    client: Client, start: BatchStart, options: ConsumeOptions, output: "Output"
) -> None:
    if options.group:
        assert isinstance(start, str | tuple | datetime)
        member = client.group(options.group).join(options.target, start=start)
        await take_as_member(member, output)
        return
    if isinstance(start, int):
        await _refuse_id_of_many(client, options.target)
    until: BatchUntil | None = "now" if options.until_now else None
    ignore = options.ignore_pause
    place = client.cursor(options.cursor) if options.cursor else start
    read = client.read_batches(options.target, start=place, until=until, ignore_pause=ignore)
    async with read as reader:
        if options.cursor:
            await _read_and_commit(reader, output)
            return
        async for batch in reader:
            if await output.take(batch):
                return


async def _read_and_commit(reader: BatchScanner, output: Output) -> None:
    """Write messages, and commit those that were written: every second, and at the end."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_commit_often, reader)
            while True:
                try:
                    unacked = await reader.step()
                except StopAsyncIteration:
                    break
                ended = await output.take(unacked.batch)
                at = output.ended_at
                # What lies behind the limit was not written, and comes again.
                if at is None or at == len(unacked.batch) - 1:
                    reader.taken(unacked)
                else:
                    messages = unacked.batch.messages
                    reader.taken(unacked, (messages[at], messages[at + 1]))
                if ended:
                    break
            tasks.cancel_scope.cancel()
    finally:
        # After Ctrl-C and a closed pipe too: those lines were written. The commit has a deadline,
        # which is an error; another one around it would hide that.
        with anyio.CancelScope(shield=True):
            await reader.commit(deadline_s=COMMIT_AT_END_S)


async def _commit_often(reader: BatchScanner) -> None:
    while True:
        await anyio.sleep(COMMIT_EVERY_S)
        try:
            await reader.commit()
        except TidemarkError as error:
            # The reader waits for a broker that is away, so its commits do, too.
            if not error.retriable:
                raise


async def _warn_of_pause(client: Client, options: ConsumeOptions) -> None:
    """Warn when consumption is paused; the reader itself reports a server that is unreachable."""
    if not options.ignore_pause:
        with suppress(TidemarkError):
            if (await client.admin.health()).consumption_paused:
                sys.stderr.write(f"tidemark: {PAUSED}\n")
    # It must not return: `until_first` would end the reading, too.
    await anyio.sleep_forever()


async def _refuse_id_of_many(client: Client, target: str) -> None:
    try:
        vchannels = (await client.collections.get(target)).vchannels
    except NoSuchCollection:  # a channel, or the read will say that there is nothing of this name
        return
    if len(vchannels) > 1:
        raise BadTarget(
            f"--from: a message ID belongs to one vchannel; name one instead of {target!r}:"
            f" {', '.join(vchannels)}"
        )


async def _reader_gone() -> None:
    """Return when stdout is closed; else `consume | head -1` would wait for the next message."""
    poll = select.poll()
    # POLLERR and POLLHUP are reported whatever the mask; with POLLOUT the poll would always
    # succeed.
    poll.register(sys.stdout.fileno(), 0)
    while not poll.poll(0):  # noqa: ASYNC110 - no event exists for this; the poll reports errors only
        await anyio.sleep(LOOK_EVERY_S)
