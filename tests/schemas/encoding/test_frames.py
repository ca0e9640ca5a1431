"""gRPC frames, cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.frames import (
    HEAD_BYTES,
    SHOWN_BYTES,
    FrameSplitter,
    frame,
    frames,
    sole_message,
)
from schemas.encoding.oversize import FrameTooLarge, Oversize
from schemas.encoding.varint import Malformed

LIMIT = 64


@given(st.lists(st.binary(max_size=LIMIT)), st.data())
def test_messages_come_out_whole_however_the_bytes_are_cut(
    messages: list[bytes], data: st.DataObject
) -> None:
    stream = frames(messages)
    assert stream == b"".join(frame(message) for message in messages)
    splitter = FrameSplitter(LIMIT)
    found: list[bytes] = []
    position = 0
    while position < len(stream):
        size = data.draw(st.integers(1, 3 * LIMIT))
        found += splitter.feed(stream[position : position + size])
        position += size
        done = sum(HEAD_BYTES + len(message) for message in found)
        assert splitter.pending == min(position, len(stream)) - done
    assert found == messages
    assert splitter.pending == 0


def test_a_length_over_the_limit_is_refused_from_the_head_alone() -> None:
    splitter = FrameSplitter(LIMIT)
    assert splitter.feed(b"\x00\xff\xff\xff") == []
    with pytest.raises(FrameTooLarge) as caught:
        splitter.feed(b"\xff")
    assert (caught.value.limit, caught.value.length) == (LIMIT, 2**32 - 1)


def test_a_message_of_exactly_the_limit_passes() -> None:
    assert FrameSplitter(LIMIT).feed(frame(b"x" * LIMIT)) == [b"x" * LIMIT]
    with pytest.raises(FrameTooLarge):
        FrameSplitter(LIMIT).feed(frame(b"x" * (LIMIT + 1)))


@given(st.lists(st.integers(0, 4 * LIMIT), max_size=6), st.data())
def test_what_is_over_the_limit_is_passed_over_however_it_arrives(
    lengths: list[int], data: st.DataObject
) -> None:
    messages = [bytes([length % 251]) * length for length in lengths]
    stream = frames(messages)
    splitter = FrameSplitter(LIMIT, passed_over_bytes_max=4 * LIMIT)
    found: list[bytes] = []
    position = 0
    while position < len(stream):
        size = data.draw(st.integers(1, 3 * LIMIT))
        found += splitter.feed(stream[position : position + size])
        position += size
        assert splitter.pending or position not in _inside(lengths)
    assert splitter.pending == 0
    for message, came in zip(messages, found, strict=True):
        if len(message) > LIMIT:
            assert isinstance(came, Oversize)
            assert (came, came.length) == (message[:SHOWN_BYTES], len(message))
        else:
            assert came == message


def _inside(lengths: list[int]) -> set[int]:
    """Positions of a stream that are within a frame."""
    inside: set[int] = set()
    start = 0
    for length in lengths:
        inside.update(range(start + 1, start + HEAD_BYTES + length))
        start += HEAD_BYTES + length
    return inside


def test_what_is_to_be_passed_over_is_announced_by_no_byte_of_it() -> None:
    splitter = FrameSplitter(LIMIT, passed_over_bytes_max=4 * LIMIT)
    stream = frame(bytes(3 * LIMIT))
    for at in range(len(stream)):
        splitter.feed(stream[at : at + 1])
        assert splitter.announced == 0
    splitter.feed(frame(bytes(LIMIT))[:-1])
    assert splitter.announced == LIMIT


def test_what_is_too_large_to_be_passed_over_is_refused() -> None:
    with pytest.raises(FrameTooLarge):
        FrameSplitter(LIMIT, passed_over_bytes_max=2 * LIMIT).feed(frame(b"x" * (2 * LIMIT + 1)))


def test_a_compressed_message_is_malformed() -> None:
    with pytest.raises(Malformed, match="flag 1"):
        FrameSplitter(LIMIT).feed(b"\x01\x00\x00\x00\x00")


def test_an_empty_message_is_a_message() -> None:
    assert FrameSplitter(LIMIT).feed(b"\x00" * 15) == [b"", b"", b""]


def test_feeding_nothing_gives_nothing() -> None:
    splitter = FrameSplitter(LIMIT)
    assert splitter.feed(b"") == []
    assert splitter.feed(b"\x00\x00") == []
    assert splitter.feed(b"") == []
    assert splitter.pending == 2


@given(st.binary(max_size=LIMIT), st.binary(min_size=1, max_size=8))
def test_a_sole_message_is_one_whole_frame_and_nothing_else(message: bytes, more: bytes) -> None:
    framed = frame(message)
    assert sole_message(framed) == message
    assert sole_message(framed[:-1]) is None
    assert sole_message(framed + more) is None
    assert sole_message(b"\1" + framed[1:]) is None
