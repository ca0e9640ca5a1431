"""Positions that a checkpoint, an option or a program brings: cuts, offsets, starts, addresses."""

import json

from broker.addresses import split_address, split_advertised
from broker.client.errors import BadTarget
from broker.client.start_time import tick_at
from broker.msgstream.stream_errors import BadPosition
from broker.msgstream.stream_places import ticks_of
from broker.spark.refusals import BadCheckpoint, BadOption
from broker.spark.source.bounds import ENDS, STARTS, ending, starting
from broker.spark.source.cut_offsets import to_offset, to_position
from tests.fuzz.choice import Reader, numbered, read_by_first_byte


def check(data: bytes) -> None:
    """A position, or the error that says what to write instead."""
    read_by_first_byte(data, READERS, ALLOWED)


def _ticks_of(data: bytes) -> None:
    ticks_of(data.decode("utf-8", "replace"), ["a_1v0", "b_2v1"])


def _checkpoint(data: bytes) -> None:
    try:
        found = json.loads(data)  # Spark's own, which refuses what is no JSON
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict):
        offset = to_offset(to_position(found))
        assert to_offset(to_position(offset)) == offset


def _starting(data: bytes) -> None:
    if data:
        name = STARTS[data[0] % len(STARTS)].lower()
        starting({name: data[1:].decode("utf-8", "replace")}, streaming=bool(data[0] & 128))


def _ending(data: bytes) -> None:
    if data:
        ending({ENDS[data[0] % len(ENDS)].lower(): data[1:].decode("utf-8", "replace")})


def _time(data: bytes) -> None:
    tick_at(data.decode("utf-8", "replace"))


def _address(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for read in (split_address, split_advertised):
        told = ""
        try:
            read(text)
        except ValueError as error:
            told = str(error)
        # Python's own error would name neither the address nor what to write.
        assert not told or "HOST" in told, told


ALLOWED = (BadPosition, BadCheckpoint, BadOption, BadTarget)
READERS: tuple[Reader, ...] = (_ticks_of, _checkpoint, _starting, _ending, _time, _address)

INPUT_BYTES_MAX = 8192
"""More digits than Python converts."""
SEEDS = numbered(
    (
        b'{"ends": {"a_1v0": 5, "b_2v1": 6}, "tick": 1000}',
        b'{"ahead": {"b_2v1": 2000}, "ends": {"a_1v0": 5, "b_2v1": 6}, "tick": 1000}',
        b'{"ahead": {"b_2v1": {"b_2v1": 2000}}, "ends": {"a_1v0": 5, "b_2v1": 6}, "tick": 1000}',
        b'\x00{"a_1v0": "earliest", "b_2v1": {"id": 5}, "c": {"tick": 5}, "d": {"timestamp": 5}}',
        b"\x011234567",
        b"\x022026-11-22T03:00:00+00:00",
        b"0001-01-01T00:00:00+23:59",
        b"broker.example.org:19531",
        b"[::1]:1",
        b"host:" + b"9" * 5000,
        "host:²".encode(),
        b'{"tick": 1e999, "ends": {}}',
        b"\x00{" + b'"a":{' * 500,
    ),
    len(READERS),
)
