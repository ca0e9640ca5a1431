"""Arrow batches that readers of cursors gave out, found again by the object itself."""

import weakref
from collections.abc import Sequence
from typing import Any

from broker.client.batch_mark import BatchMark


class GivenRows:
    """The marks of each RecordBatch for as long as the program keeps the object.

    Nothing can be attached to a RecordBatch, and its columns do not say which reader gave it out.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[Any], Sequence[BatchMark]]] = {}

    def add(self, rows: Any, marks: Sequence[BatchMark]) -> None:
        """Remember them until the object is gone."""
        key, found = id(rows), self._found
        # The id may be used again as soon as the object is gone.
        found[key] = (weakref.ref(rows, lambda _: found.pop(key, None)), marks)

    def marks(self, rows: Any) -> Sequence[BatchMark] | None:
        """None for an object that no reader gave out, such as a slice or a copy of one."""
        known = self._found.get(id(rows))
        return known[1] if known is not None and known[0]() is rows else None
