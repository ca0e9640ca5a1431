"""Until when this node may write: a time of its own clock, before the coordinator's patience ends.

Owns that time. Never asks anybody: it is read before every write, and moved on by Membership.

Why the log's own fence is not enough: an announced tick is written nowhere, so no log could stop a
node that was replaced from promising one. And why the clock, not a flag: a process that was stopped
for a while looks at its flag before anybody could change it.
Next: broker/node/membership/membership.py
"""

import math


class WriteLease:
    """For ever, until it is given an end.

    `session` is what a writer remembers when it opens: with another one, it is over for that writer
    for good, because the coordinator may have given its channel away in between.
    """

    def __init__(self) -> None:
        self.session = 0
        self._until_s = math.inf

    def holds(self, session: int, now_s: float) -> bool:
        """Whether a write that begins now may be acknowledged."""
        return session == self.session and now_s < self._until_s

    def until(self, end_s: float, session: int) -> None:
        """It ends at this time of the node's clock, whatever was said before."""
        self._until_s, self.session = end_s, session

    def end(self) -> None:
        """It is over."""
        self._until_s = -math.inf
