"""How much of each log this node keeps, and what holds it back; both may change at any time."""

from collections.abc import Sequence

from broker.model.ids import PChannelName
from broker.model.retention.holders import (
    Hold,
    Removal,
)
from broker.model.retention.policy import Retention


class RetentionRule:
    """`now`: what holds for the next check of every pchannel.

    `hold_bytes_max`: kept of each pchannel beyond `now` while the holders are not known.
    `removals`: the outcome of the newest check of each pchannel of which anything was due.
    """

    def __init__(self, retention: Retention, hold_bytes_max: int = 0) -> None:
        self.now = retention
        self.hold_bytes_max = hold_bytes_max
        self.removals: dict[PChannelName, Removal] = {}
        self.unasked: dict[PChannelName, str] = {}
        """Why nobody could be asked about a pchannel, while something of it is due."""
        self.known: dict[PChannelName, tuple[Hold, ...]] = {}
        self.unasked_bytes = 0
        """Removed without asking, since the process started."""

    def adopt(self, retention: Retention, hold_bytes_max: int) -> None:
        """New settings, in effect from the next check."""
        self.now, self.hold_bytes_max = retention, hold_bytes_max

    def warnings(self) -> Sequence[str]:
        """What an operator should know of retention now."""
        found = []
        if self.unasked:
            name, why = next(iter(self.unasked.items()))
            found.append(
                f"{len(self.unasked)} pchannels, {name} among them, keep up to"
                f" {self.hold_bytes_max:,} bytes more than retention allows: {why}"
            )
        if self.unasked_bytes:
            found.append(
                f"retention removed {self.unasked_bytes:,} bytes without asking who holds them,"
                " since this process started: the coordinator did not answer or could not record it"
            )
        return found
