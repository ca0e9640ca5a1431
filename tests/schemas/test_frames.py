"""gRPC frames, cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.frames import HEAD_BYTES, FrameSplitter, FrameTooLarge, frame, frames
from schemas.varint import Malformed

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
