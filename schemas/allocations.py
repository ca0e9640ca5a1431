"""Hand-written encoding of the answers to AllocTimestamp and AllocID.

Why: encoding them with the generated classes takes longer than finding the numbers.
"""

from typing import Final

from schemas.encoding.varint import varint

_FIRST: Final = b"\x08"
_COUNT: Final = b"\x10"


def allocated(first: int, count: int) -> bytes:
    """A `tidemark.v1.AllocTimestampResponse` or `AllocIdResponse`; neither number is 0."""
    return _FIRST + varint(first) + _COUNT + varint(count)
