"""The micro-batches that a query has made, as its files tell them."""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.spark.transfers.query import SUMS


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """`tick`: its last row's."""

    rows: int
    sum: int
    tick: int


class Made:
    """All of one query, over all its drivers."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the one of the driver."""
        self.batches: dict[int, MicroBatch] = {}
        self.made_again = 0
        self.changed: list[int] = []
        """Those that were others when they were made again."""
        self._folder = folder / SUMS
        self._seen: set[Path] = set()

    @property
    def rows(self) -> int:
        return sum(it.rows for it in self.batches.values())

    @property
    def broken(self) -> list[int]:
        """Those that move the sum of all accounts: they split a transfer."""
        return sorted(number for number, it in self.batches.items() if it.sum)

    def look(self) -> bool:
        """Take what was made meanwhile; whether there was anything."""
        new = sorted(set(self._folder.glob("*.json")) - self._seen)
        for path in new:
            told = json.loads(path.read_text())
            number, it = told["batch"], MicroBatch(told["rows"], told["sum"], told["tick"])
            self.made_again += number in self.batches
            if self.batches.setdefault(number, it) != it:
                self.changed.append(number)
        self._seen.update(new)
        return bool(new)
