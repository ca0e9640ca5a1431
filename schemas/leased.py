"""Builds and scans the answers of `tidemark.v1.Groups/Join` that carry batches.

A batch is copied once into an answer and once out of it. Whatever else an answer has is left to the
generated code.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from schemas.batches import ReadBatch, scan_batch
from schemas.encoding.fields import copied, fields
from schemas.encoding.frames import frame_head
from schemas.encoding.varint import varint

LEASED: Final = 0x12
"""The tag of `JoinGroupResponse.leased`."""
READ: Final = 0x22
"""The tag of `LeasedMessages.reads`."""
BATCH: Final = 0x0A
"""The tag of `ReadResponse.batch`."""


class JoinAnswer(NamedTuple):
    """A JoinGroupResponse as received."""

    rest: bytes
    """The JoinGroupResponse without `leased`."""
    leased: bytes | None
    """The LeasedMessages without `reads`; None when there are none."""
    batches: list[ReadBatch]
    """What the reads hold."""


def leased_response(leased: bytes, reads: Iterable[Sequence[bytes]]) -> bytes:
    """A framed JoinGroupResponse.

    `leased`: a LeasedMessages without reads; `reads`: each a ReadResponse in parts.
    """
    parts, size = [leased], len(leased)
    for read in reads:
        read_bytes = sum(map(len, read))
        length = varint(read_bytes)
        parts += (b"\x22", length, *read)
        size += 1 + len(length) + read_bytes
    length = varint(size)
    return b"".join((frame_head(1 + len(length) + size), b"\x12", length, *parts))


def scan_join_response(data: bytes) -> JoinAnswer:
    """What a JoinGroupResponse says. Raises Malformed."""
    rest: list[bytes] = []
    leased: list[bytes] | None = None
    batches: list[ReadBatch] = []
    for tag, first, stop in fields(data, 0, len(data)):
        if tag == LEASED:
            leased = leased or []
            _scan_leased(data, first, stop, leased, batches)
        else:
            rest.append(copied(data, tag, first, stop))
    head = None if leased is None else b"".join(leased)
    return JoinAnswer(b"".join(rest), head, batches)


def _scan_leased(
    data: bytes, start: int, end: int, leased: list[bytes], batches: list[ReadBatch]
) -> None:
    for tag, first, stop in fields(data, start, end):
        if tag != READ:
            leased.append(copied(data, tag, first, stop))
            continue
        for inner, at, to in fields(data, first, stop):
            if inner == BATCH:
                batches.append(scan_batch(data, at, to))
