"""Compressed bodies of batches, with the size that their sender declares."""

from schemas.packing import LZ4, ZSTD, BadPacking, pack, unpack

SIZE_MAX = 16 << 20
"""What a frame may hold: the declared sizes of a batch are held to it before it is unpacked."""


def check(data: bytes) -> None:
    """BadPacking, or exactly as many bytes as were declared; never more than that in memory."""
    if len(data) < 5:
        return
    codec = LZ4 if data[0] & 1 else ZSTD
    size = int.from_bytes(data[1:5], "little") % (SIZE_MAX + 1)
    try:
        assert len(unpack(codec, data[5:], size)) == size
    except BadPacking:
        pass


def _seed(codec: int, body: bytes, declared: int) -> bytes:
    return bytes((codec & 1,)) + declared.to_bytes(4, "little") + pack(codec, body)


_TEXT = b"the same again and again " * 20
SEEDS = tuple(
    _seed(codec, body, declared)
    for codec in (LZ4, ZSTD)
    for body in (b"", _TEXT, bytes(100_000))
    for declared in (len(body), SIZE_MAX)
)
