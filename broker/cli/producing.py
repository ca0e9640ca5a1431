"""`tidemark produce`: appends lines from a file or stdin, in order.

Holds one chunk of input and one batch at a time, whatever the size of the input.
"""

import json
import os
import select
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from broker.cli.counted import counted
from broker.cli.session import USAGE, fail, with_client
from broker.client import Appended, AppendsFailed, Client, Message

CHUNK_BYTES = 256 * 1024
LINE_BYTES_MAX = 16 * 1024 * 1024
STDIN = 0
LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """What to append, and where. `file`: None or `-` is stdin. `txn`: batches are transactions."""

    target: str
    file: Path | None
    key: str | None
    batch: int
    txn: bool = False


class BadLine(Exception):
    """A line of the input is not a message; the text says why."""


def produce_lines(server: str, options: ProduceOptions, *, as_json: bool) -> None:
    """Append all lines, then print how many and how fast; errors say how many came before."""
    tally = Tally()

    async def produce(client: Client) -> None:
        tally.started_s = anyio.current_time()
        with _progress(descriptor) as advance:
            async for lines, size in _chunks(descriptor):
                for first in range(0, len(lines), options.batch):
                    batch = lines[first : first + options.batch]
                    await _append(client, options, batch, tally)
                advance(size)
                # Set after each chunk, so that the wait for the end of the input is not counted.
                tally.ended_s = anyio.current_time()

    with _opened(options.file) as descriptor:
        try:
            with_client(server, produce, failed=tally.say)
        except BadLine as error:
            fail(tally.say(str(error)))
    sys.stdout.write(tally.json() if as_json else tally.line())


@dataclass(slots=True)
class Tally:
    """Counts what was acknowledged."""

    messages: int = 0
    bytes: int = 0
    transactions: int = 0
    started_s: float = 0.0
    ended_s: float = 0.0

    @property
    def seconds(self) -> float:
        return max(self.ended_s - self.started_s, 0.0)

    @property
    def rate(self) -> int:
        return round(self.messages / self.seconds) if self.seconds else 0

    def line(self) -> str:
        """One line for people."""
        return (
            f"{counted(self.messages, 'message')}, {counted(self.bytes, 'byte')}"
            f" in {self.seconds:.2f} s"
            f" ({self.rate:,} messages/s{self._in_transactions()})\n"
        )

    def json(self) -> str:
        """One line of JSON."""
        seconds = round(self.seconds, 3)
        fields = {"messages": self.messages, "bytes": self.bytes, "seconds": seconds}
        if self.transactions:
            fields["transactions"] = self.transactions
        return json.dumps(fields) + "\n"

    def _in_transactions(self) -> str:
        return f", {counted(self.transactions, 'transaction')}" if self.transactions else ""

    def say(self, error: str) -> str:
        """An error sentence, with the number of messages appended before it."""
        were = "was" if self.messages == 1 else "were"
        return f"{error} ({counted(self.messages, 'message')} {were} appended before it)"


async def _append(
    client: Client, options: ProduceOptions, lines: Sequence[bytes], tally: Tally
) -> None:
    messages = [Message(line, key=_key(line, options.key)) for line in lines]
    try:
        landed = await client.append_messages(options.target, messages, atomic=options.txn)
    except AppendsFailed as error:
        tally.messages += sum(isinstance(it, Appended) for it in error.results)
        raise
    tally.messages += len(messages)
    if options.txn:
        tally.transactions += len({(it.vchannel, it.tick) for it in landed})
    tally.bytes += sum(map(len, lines))


def _key(line: bytes, field: str | None) -> str | None:
    """The text of the field; other values as JSON writes them; None for null."""
    if field is None:
        return None
    try:
        value = json.loads(line)[field]
    except (ValueError, TypeError, RecursionError):
        raise BadLine(f"with --key a line must be a JSON object, not {line[:80]!r}") from None
    except KeyError:
        raise BadLine(f"field {field!r} of --key is missing in {line[:80]!r}") from None
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


async def _chunks(descriptor: int) -> AsyncIterator[tuple[list[bytes], int]]:
    """Whole lines as they arrive, without line ends and blank lines; and the bytes read.

    Reads on a thread, because a pipe that pauses must not block the replies to earlier appends.
    """
    rest = b""
    source = _Source(descriptor)
    try:
        while chunk := await anyio.to_thread.run_sync(source.read, abandon_on_cancel=True):
            *lines, rest = (rest + chunk).split(b"\n")
            # Input without line ends must not fill the memory.
            if len(rest) > LINE_BYTES_MAX:
                raise BadLine(f"a line is longer than {LINE_BYTES_MAX:,} bytes")
            yield _not_blank(lines), len(chunk)
        yield _not_blank([rest]), 0
    finally:
        source.left = True


class _Source:
    """Blocking reads that end soon after Ctrl-C.

    Python joins every thread at exit, so a plain `read` would keep the program until more input.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.left = False

    def read(self) -> bytes:
        while not self.left:
            readable, _, _ = select.select([self._descriptor], [], [], LOOK_EVERY_S)
            if readable:
                return os.read(self._descriptor, CHUNK_BYTES)
        return b""


def _not_blank(lines: Sequence[bytes]) -> list[bytes]:
    stripped = (line.removesuffix(b"\r") for line in lines)
    return [line for line in stripped if line]


@contextmanager
def _opened(file: Path | None) -> Iterator[int]:
    if file is None or str(file) == "-":
        yield STDIN
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", USAGE)
    with opened:
        yield opened.fileno()


@contextmanager
def _progress(descriptor: int) -> Iterator[Callable[[int], object]]:
    """A progress bar in bytes, when stderr is a terminal; yields the function that advances it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    about = os.fstat(descriptor)
    total = about.st_size if stat.S_ISREG(about.st_mode) else None
    columns = (*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("appending", total=total)
        yield lambda size: bar.advance(task, size)
