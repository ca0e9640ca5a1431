"""Counts what is stored, and says it: at the end, after an error and after Ctrl-C."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.cli.counted import counted
from broker.cli.produce.input_file import STDIN_NAME, Place


@dataclass(slots=True)
class Tally:
    """What was acknowledged. `unit`: message or row.

    `place`: everything before it is stored. `beyond`: how many behind it are stored as well, and
    `doubtful`: how many more may be.
    """

    unit: str
    messages: int = 0
    bytes: int = 0
    transactions: int = 0
    place: Place | None = None
    beyond: int = 0
    doubtful: int = 0
    rest: Sequence[str] = field(default_factory=list)
    """The names of the files that are not read to their end, the current one first."""
    started_s: float = 0.0
    ended_s: float = 0.0

    @property
    def seconds(self) -> float:
        return max(self.ended_s - self.started_s, 0.0)

    @property
    def rate(self) -> int:
        return round(self.messages / self.seconds) if self.seconds else 0

    def line(self) -> str:
        """One line for people."""
        return (
            f"{counted(self.messages, self.unit)}, {counted(self.bytes, 'byte')} in"
            f" {self.seconds:.2f} s ({counted(self.rate, self.unit)}/s{self._in_transactions()})\n"
        )

    def json(self) -> str:
        """One line of JSON."""
        seconds = round(self.seconds, 3)
        fields = {f"{self.unit}s": self.messages, "bytes": self.bytes, "seconds": seconds}
        if self.transactions:
            fields["transactions"] = self.transactions
        return json.dumps(fields) + "\n"

    def say(self, error: str) -> str:
        """An error sentence, with what is stored and where to go on."""
        return f"{error}; {self.stored()}"

    def stored(self) -> str:
        """How much is stored, and with which options another run goes on behind it."""
        stored = self.messages - self.beyond
        if not self.messages and not self.doubtful:
            return "nothing is stored"
        text = f"{counted(stored, self.unit)} {'is' if stored == 1 else 'are'} stored"
        if self.place is not None:
            text += f", up to {self.place}"
        if self.beyond:
            text += f", and {self.beyond:,} of those behind that"
        if self.doubtful:
            text += f"; up to {self.doubtful:,} more may be stored"
        return f"{text}; to go on: {self._how_to_go_on()}"

    def _how_to_go_on(self) -> str:
        skip = "" if self.place is None else f"--skip {self.place.done}"
        if list(self.rest) in ([], [STDIN_NAME]):
            return f"{skip or 'again'}, with the same input"
        return " ".join([skip, *self.rest]).strip()

    def _in_transactions(self) -> str:
        if not self.transactions:
            return ""
        return f", {counted(self.transactions, 'transaction')}"
