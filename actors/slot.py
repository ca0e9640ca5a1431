"""A child's permanent place under its supervisor, across incarnations.

Keeps what outlives an incarnation: the last term, counts, the last error.
"""

from collections import OrderedDict

from actors.cell import Cell
from actors.spec import AnySpec, SupervisorSpec
from actors.strategy import Restart
from actors.timer import Timer

FORMER_NAMES_MAX = 1024
"""Names of removed children whose terms a supervisor remembers; the oldest are forgotten first."""


class Slot:
    """One path of the tree."""

    def __init__(self, spec: AnySpec, parent_path: str, *, dynamic: bool = False) -> None:
        self.spec = spec
        self.path = f"{parent_path}/{spec.name}"
        self.dynamic = dynamic
        self.term = 0
        self.cell: Cell | None = None
        self.idle_state = "waiting"
        self.restarts = 0
        self.attempts = 0
        self.up_since_s = 0.0
        self.last_error = ""
        self.retry: Timer | None = None
        self.children: OrderedDict[str, Slot] = OrderedDict()
        self._former: OrderedDict[str, Slot] = OrderedDict()

    @property
    def state(self) -> str:
        """One word for `statistics`."""
        return self.idle_state if self.cell is None else self.cell.state

    def cancel_retry(self) -> None:
        """Forget the planned restart, if any."""
        if self.retry is not None:
            self.retry.cancel()
            self.retry = None

    def reset(self) -> None:
        """Restore the children of the spec with their former terms, as a supervisor starts."""
        assert isinstance(self.spec, SupervisorSpec)
        # Retired first, so that `add` finds their terms: a reference to a child of the former
        # supervisor must stay stale.
        for name in tuple(self.children):
            self._retire(name)
        for spec in self.spec.children:
            self.add(spec, dynamic=False)
        self._forget()

    def add(self, spec: AnySpec, *, dynamic: bool) -> "Slot":
        """Add a place for a child at the end, with its former term if the name is remembered."""
        slot = self._former.pop(spec.name, None) or Slot(spec, self.path)
        slot.spec = spec
        slot.dynamic = dynamic
        slot.idle_state = "waiting"
        slot.attempts = 0
        self.children[spec.name] = slot
        return slot

    def remove(self, name: str) -> None:
        """Remove the place; a temporary dynamic child is forgotten with its term."""
        self._retire(name)
        self._forget()

    def _retire(self, name: str) -> None:
        slot = self.children.pop(name)
        slot.cancel_retry()
        slot.cell = None
        slot.idle_state = "stopped"
        if not (slot.dynamic and slot.spec.restart is Restart.TEMPORARY):
            self._former[name] = slot

    def _forget(self) -> None:
        while len(self._former) > FORMER_NAMES_MAX:
            self._former.popitem(last=False)
