"""Reads lines, and makes messages of them."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import anyio.to_thread

from broker.cli.produce.input_file import BadInput, InputFile, Place

CHUNK_BYTES: Final = 256 * 1024
LINE_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines without their ends; line i of them is number `first` + i, counted from 1."""

    file: str
    lines: Sequence[bytes]
    first: int
    byte: int
    """Where the first begins."""

    def part(self, start: int, stop: int) -> "Lines":
        """Lines [start, stop)."""
        skipped = sum(map(len, self.lines[:start])) + start
        return Lines(self.file, self.lines[start:stop], self.first + start, self.byte + skipped)

    @property
    def end(self) -> Place:
        """The place behind the last one."""
        size = sum(map(len, self.lines)) + len(self.lines)
        return Place(self.file, "line", self.first + len(self.lines) - 1, self.byte + size)

    def kept(self) -> list[bytes]:
        """Those that are not blank."""
        stripped = (line.removesuffix(b"\r") for line in self.lines)
        return [line for line in stripped if line]


async def line_chunks(source: InputFile, skip: int) -> AsyncIterator[Lines]:
    """Whole lines as they arrive, without the first `skip`. Raises BadInput.

    Reads on a thread, because a pipe that pauses must not block the replies to earlier appends.
    """
    rest, number, byte = b"", 1, 0
    while chunk := await anyio.to_thread.run_sync(
        source.read_some, CHUNK_BYTES, abandon_on_cancel=True
    ):
        *lines, rest = (rest + chunk).split(b"\n")
        # Input without line ends must not fill the memory.
        if len(rest) > LINE_BYTES_MAX:
            raise BadInput(
                f"{source.name}, line {number + len(lines):,}: the line is longer than"
                f" {LINE_BYTES_MAX:,} bytes"
            )
        found = Lines(source.name, lines, number, byte)
        number += len(lines)
        byte = found.end.byte or 0
        yield found.part(min(len(lines), max(0, skip + 1 - found.first)), len(lines))
    # What was cut off by Ctrl-C is no line.
    if rest and not source.left and number > skip:
        yield Lines(source.name, [rest], number, byte)


def keys_of(lines: Lines, field: str | None) -> list[str | None] | None:
    """The key of each line that is not blank; None without a field. Raises BadInput."""
    if field is None:
        return None
    keys: list[str | None] = []
    for number, line in enumerate(lines.lines, lines.first):
        stripped = line.removesuffix(b"\r")
        if not stripped:
            continue
        try:
            keys.append(_key(stripped, field))
        except BadInput as error:
            raise BadInput(f"{lines.file}, line {number:,}: {error}") from None
    return keys


def _key(line: bytes, field: str) -> str | None:
    """The text of the field; other values as JSON writes them; None for null."""
    try:
        value = json.loads(line)[field]
    except (ValueError, TypeError, RecursionError):
        raise BadInput(f"with --key a line must be a JSON object, not {line[:80]!r}") from None
    except KeyError:
        raise BadInput(f"field {field!r} of --key is missing in {line[:80]!r}") from None
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
