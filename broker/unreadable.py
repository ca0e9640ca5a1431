"""What reading a stored JSON record raises when the record is damaged."""

from typing import Final

UNREADABLE: Final = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    # `int` of a number such as 1e999, which JSON reads as infinity.
    OverflowError,
    # Lists in lists in lists.
    RecursionError,
)
"""For `except UNREADABLE`: a record is bytes from a disk, so none of these is a defect of ours."""
