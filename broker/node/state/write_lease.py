"""Until when this node may write, by its own clock.

While that clock runs, the lease ends before the coordinator reassigns channels.

Membership extends it; Appenders check it before every write.

Why the log's own fence is not enough: on an idle channel a tick is closed without a write, so no
log could stop a replaced node from closing one. Why a time and not a flag: a process that was
stopped (SIGSTOP) reads its flag before anything could clear it.

What it does not cover: the monotonic clock stands still while a machine is suspended, and, on many
hypervisors, while a VM is paused. Then the lease seems to go on. So does it when the coordinator
takes a node for gone that lives. The coordinator gives no ticks to a session that is over.
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
