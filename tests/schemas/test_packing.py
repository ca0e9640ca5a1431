"""Packed bodies: there and back, and every lie about them refused before it costs memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import packing
from schemas.packing import LZ4, ZSTD, BadPacking, codec_named, pack, unpack

CODECS = st.sampled_from((LZ4, ZSTD))


@given(CODECS, st.binary(min_size=1, max_size=2000))
def test_what_was_packed_is_unpacked(codec: int, data: bytes) -> None:
    assert unpack(codec, pack(codec, data), len(data)) == data


@given(CODECS, st.binary(min_size=1, max_size=2000), st.integers(-50, 50).filter(bool))
def test_another_size_is_refused(codec: int, data: bytes, more: int) -> None:
    with pytest.raises(BadPacking):
        unpack(codec, pack(codec, data), max(0, len(data) + more))


@given(CODECS, st.binary(max_size=200), st.integers(0, 1000))
def test_garbage_is_refused_and_raises_nothing_else(codec: int, data: bytes, size: int) -> None:
    try:
        assert len(unpack(codec, data, size)) == size
    except BadPacking:
        return


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_a_bomb_is_refused(codec: int) -> None:
    with pytest.raises(BadPacking):
        unpack(codec, pack(codec, bytes(50 << 20)), 1000)


def test_a_size_that_no_body_can_have_is_refused_before_room_is_made() -> None:
    with pytest.raises(BadPacking, match="cannot hold"):
        unpack(LZ4, bytes(100), 1 << 40)


def test_codecs_are_named() -> None:
    assert [codec_named("lz4"), codec_named("zstd")] == [LZ4, ZSTD]
    with pytest.raises(BadPacking, match="snappy"):
        codec_named("snappy")


def test_a_codec_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(packing._MODULES, LZ4, "no_such_module")
    with pytest.raises(BadPacking, match=r"lz4 .*pip install '\.\[compression\]'"):
        codec_named("lz4")
