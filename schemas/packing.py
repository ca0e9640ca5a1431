"""Compresses and decompresses batch bodies: LZ4 and Zstandard, if their libraries are installed.

A body that would decompress to more than its declared size is refused before memory is allocated
for it (a decompression bomb).
"""

from importlib import import_module
from types import ModuleType
from typing import Final

LZ4: Final = 1
ZSTD: Final = 2
_MODULES: Final = {LZ4: "lz4.block", ZSTD: "zstandard"}
_NAMES: Final = {LZ4: "lz4", ZSTD: "zstd"}
NO_RATIO_IS_ABOVE: Final = 255
"""The highest possible LZ4 ratio: a body that claims more is refused without decompression."""


class BadPacking(ValueError):
    """A body that does not decompress to its declared size, or a codec that is not installed."""


def codec_named(name: str) -> int:
    """The number of "lz4" or "zstd". Raises BadPacking."""
    for number, known in _NAMES.items():
        if name == known:
            _library(number)
            return number
    raise BadPacking(f"codec {name!r} is not known; there are {', '.join(_NAMES.values())}")


def pack(codec: int, data: bytes) -> bytes:
    """Raises BadPacking when the codec is not installed."""
    library = _library(codec)
    if codec == LZ4:
        # The sizes of the batch say how long the body is.
        return bytes(library.compress(data, store_size=False))
    # `unpack` compares the size in the frame before anything is allocated.
    return bytes(library.ZstdCompressor(write_content_size=True).compress(data))


def unpack(codec: int, data: bytes, size: int) -> bytes:
    """Exactly `size` bytes. Raises BadPacking."""
    library = _library(codec)
    unpacked = (_unpack_lz4 if codec == LZ4 else _unpack_zstd)(library, data, size)
    if len(unpacked) != size:
        raise BadPacking(f"{_NAMES[codec]} gives {len(unpacked)} bytes, the sizes say {size}")
    return unpacked


def _unpack_lz4(library: ModuleType, data: bytes, size: int) -> bytes:
    """The library allocates `size` bytes at once, so check first that the size is possible."""
    if size > NO_RATIO_IS_ABOVE * len(data):
        raise BadPacking(f"{len(data)} bytes of lz4 cannot hold the {size} that the sizes say")
    try:
        return bytes(library.decompress(data, uncompressed_size=size))
    except library.LZ4BlockError as error:
        raise BadPacking(f"not an lz4 block of {size} bytes: {error}") from None


def _unpack_zstd(library: ModuleType, data: bytes, size: int) -> bytes:
    """The library trusts the size in the frame's header, so check that first."""
    try:
        told = library.frame_content_size(data)
        if told != size:
            raise BadPacking(f"a zstd frame of {told} bytes where the sizes say {size}")
        return bytes(library.ZstdDecompressor().decompress(data, max_output_size=size))
    except library.ZstdError as error:
        raise BadPacking(f"not a zstd frame of {size} bytes: {error}") from None


def _library(codec: int) -> ModuleType:
    try:
        return import_module(_MODULES[codec])
    except ImportError:
        raise BadPacking(
            f"{_NAMES[codec]} is not installed here;"
            " install Tidemark with it: pip install '.[compression]'"
        ) from None
