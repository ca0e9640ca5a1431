"""Until when this node may write, by its own clock; ends before the coordinator reassigns channels.

Membership extends it; Appenders check it before every write.

Why the log's own fence is not enough: on an idle channel a tick is closed without a write, so no
log could stop a replaced node from closing one. Why a time and not a flag: a process that was
stopped (SIGSTOP, a paused VM) reads its flag before anything could clear it.
"""

import math


class WriteLease:
    """Unlimited until `until` or `end` is called, as in a cluster of one process.

    Session 0: none was granted yet.

    A writer keeps the `session` of its assignment. After a change of session it may never write
    again: in between, the coordinator may have assigned its channel to another node.
    """

    def __init__(self) -> None:
        self.session = 0
        self._until_s = math.inf

    def holds(self, session: int, now_s: float) -> bool:
        """Whether a writer of this session may start a write now."""
        return session == self.session and now_s < self._until_s

    def until(self, end_s: float, session: int) -> None:
        """Set the end, in seconds of the node's monotonic clock, and the session."""
        self._until_s, self.session = end_s, session

    def end(self) -> None:
        """End the lease now."""
        self._until_s = -math.inf
