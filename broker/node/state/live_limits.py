"""The limits of a node, some of which an operator changes while it runs.

Actors read `now` where they need a limit. Those that set a timer by one are notified instead: the
timer may be far away.
"""

from collections.abc import Callable

from actors import ActorError
from broker.node.state.node_limits import NodeLimits


class LiveLimits:
    """One per node. `now`: what holds."""

    def __init__(self, limits: NodeLimits) -> None:
        self.now = limits
        self._listeners: dict[str, Callable[[], None]] = {}

    def listen(self, name: str, changed: Callable[[], None]) -> None:
        """Call `changed` after every change; a restarted actor replaces its predecessor."""
        self._listeners[name] = changed

    def adopt(self, limits: NodeLimits) -> None:
        """New limits, in effect at once."""
        if limits == self.now:
            return
        self.now = limits
        for changed in self._listeners.values():
            try:
                changed()
            except ActorError:  # it restarts, and reads `now` then
                continue
