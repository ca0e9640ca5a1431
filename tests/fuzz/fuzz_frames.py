"""gRPC messages within a stream of bytes that arrives in any pieces."""

from schemas.encoding.frames import FrameSplitter, frame
from schemas.encoding.oversize import FrameTooLarge, Oversize
from schemas.encoding.varint import Malformed

LIMIT, PASSED_OVER_MAX = 64, 4096


def check(data: bytes) -> None:
    """However the bytes are cut, the same messages come, and the same error."""
    if not data:
        return
    # At most 64 pieces, so that long inputs take no longer than others.
    step = max(1 + data[0] % 32, len(data) // 64)
    whole = _split([data[1:]])
    pieces = _split([data[at : at + step] for at in range(1, len(data), step)])
    # The last piece before an error takes the messages with it that were complete in it.
    assert pieces[0][: len(whole[0])] == whole[0] or whole[1] is not None
    assert pieces[1] == whole[1]


def _split(pieces: list[bytes]) -> tuple[list[tuple[bytes, int]], type | None]:
    splitter = FrameSplitter(LIMIT, passed_over_bytes_max=PASSED_OVER_MAX)
    found: list[tuple[bytes, int]] = []
    for piece in pieces:
        try:
            found += [
                (bytes(each), each.length if isinstance(each, Oversize) else 0)
                for each in splitter.feed(piece)
            ]
        except (FrameTooLarge, Malformed) as error:
            return found, type(error)
        held = sum(map(len, splitter._chunks))
        assert held <= 5 + LIMIT + len(piece), "it keeps more than one unfinished frame"
    return found, None


SEEDS = (
    b"\x03" + frame(b"a") + frame(b"") + frame(b"b" * 64),
    b"\x07" + frame(b"c" * 65) + frame(b"d"),
    b"\x00" + frame(b"e" * 300) + frame(b"f") + frame(b"g" * 40)[:20],
    b"\x00\x00\x7f\xff\xff\xff",
    b"\x00\x01\x00\x00\x00\x01z",
)
