"""Single Arrow values and counting arrays, made from buffers.

Why not `pyarrow.scalar` and `pyarrow.array`: they check whether pandas made their argument, and
import it if it is installed, which takes a second in every process.
"""

from array import array
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from schemas.arrow.columns import arrow

_INT64: Final = Struct("=q")
_OFFSETS: Final = Struct("=ii")


def number(value: int) -> Any:
    """A `pyarrow.Int64Scalar`."""
    pa = arrow()
    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(_INT64.pack(value))])[0]


def text(value: str) -> Any:
    """A `pyarrow.StringScalar`."""
    pa, data = arrow(), value.encode()
    offsets = pa.py_buffer(_OFFSETS.pack(0, len(data)))
    return pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(data)])[0]


def counted(first: int, count: int) -> Any:
    """An int64 array of `count` consecutive numbers from `first` on; `count` > 0."""
    # Rounded up to a power of two, so that a few cached arrays serve every count.
    counting = _counting(1 << (count - 1).bit_length()).slice(0, count)
    return arrow().compute.add(counting, number(first))


@lru_cache(maxsize=32)
def _counting(count: int) -> Any:
    pa = arrow()
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(array("q", range(count)))])
