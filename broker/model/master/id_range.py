"""A range of ids that one caller was given."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids first, first + 1, … (`count` of them); nobody else gets one of them, ever."""

    first: int
    count: int
