"""What becomes of a frame over the limit: an error, or its beginning where it is passed over.

Apart from `frames`, which can be compiled: mypyc has no native subclasses of `bytes`.
"""

from typing import Self


class FrameTooLarge(ValueError):
    """A frame announces `length` bytes where `limit` are allowed; nothing was allocated for it."""

    def __init__(self, limit: int, length: int) -> None:
        super().__init__(f"a frame of {length} bytes, where at most {limit} are allowed")
        self.limit = limit
        self.length = length


class Oversize(bytes):
    """The beginning of a message of `length` bytes, which is over the limit; the rest is gone."""

    length: int

    def __new__(cls, beginning: bytes, length: int) -> Self:
        self = super().__new__(cls, beginning)
        self.length = length
        return self
