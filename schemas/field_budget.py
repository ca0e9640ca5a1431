"""How many fields a message may have, so that to decode it takes a bounded time.

Two bytes are a field, and a field takes microseconds: without a limit a request of 16 MiB takes
ten seconds, and its lists of empty messages hundreds of times its size.
"""

from collections.abc import Callable
from typing import Final

from schemas.encoding.varint import Malformed

MESSAGE_FIELDS: Final = 8
"""What a message counts beside its fields: to make its object takes so much longer."""
LARGEST: Final = 131_072
"""Fields of the largest message of a stranger that is read on the event loop. It takes a tenth of a
second."""
STEP: Final = 256
"""Fields of one message between two looks at the budget."""


class TooManyFields(Malformed):
    """A message has more fields than its reader takes."""

    def __init__(self, fields_max: int) -> None:
        super().__init__(f"a message of more than {fields_max} fields", 0)


class FieldBudget:
    """The fields of one message with all that is in it; `None`: any number.

    `pause` is called after each STEP of them.
    """

    __slots__ = ("_left", "_max", "_pause", "_paused_at")

    def __init__(self, fields_max: int | None, pause: Callable[[], None] | None = None) -> None:
        self._max = self._left = self._paused_at = fields_max
        self._pause = pause

    @property
    def taken(self) -> int:
        """How many were counted; 0 of a budget for any number."""
        return 0 if self._max is None or self._left is None else self._max - self._left

    def take(self, count: int) -> None:
        """Count so many fields. Raises TooManyFields."""
        if self._max is None or self._left is None or self._paused_at is None:
            return
        self._left -= count
        if self._left < 0:
            raise TooManyFields(self._max)
        if self._pause is not None and self._paused_at - self._left >= STEP:
            self._paused_at = self._left
            self._pause()
