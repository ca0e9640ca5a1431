"""The tree of actors on the screen. Updated in place: collapsed nodes stay collapsed."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from broker.cli.top.panels import ActorRow, rate

OPEN_DEPTH = 2
"""Levels that are expanded at first; deeper ones repeat for each channel."""
GUIDE = 2
NAME_MIN, NAME_MAX = 30, 64
FIGURES = f"{'term':>6} {'mailbox':>11} {'restarts':>8} {'handled/s':>10}"
MARGIN = 4
"""Room for the scroll bar and the mark of a node that can be expanded."""


class ActorTreeWidget(Tree[str]):
    """Shows one line per actor, with columns."""

    def __init__(self, **options: Any) -> None:
        super().__init__("", **options)
        self.show_root = False
        self.guide_depth = GUIDE
        self.auto_expand = True
        self._nodes_by_path: dict[str, TreeNode[str]] = {}

    def heading(self, width: int) -> Text:
        """The headings of the columns."""
        return Text(f"{'  actor':<{_name_width(width) + 2}} {FIGURES}", no_wrap=True)

    def update_rows(self, branches: Sequence[ActorRow], width: int) -> None:
        """Show these rows, and no others."""
        alive = {it.path for it in branches}
        # Children first: removing a node also removes those below it from the screen.
        for path in sorted(set(self._nodes_by_path) - alive, key=len, reverse=True):
            self._nodes_by_path.pop(path).remove()
        for it in branches:
            label = _label(it, width)
            node = self._nodes_by_path.get(it.path)
            if node is None:
                self._nodes_by_path[it.path] = self._add_row(it, label)
            elif str(node.label) != str(label):
                node.set_label(label)

    def expand_levels(self, everything: bool) -> None:
        """Expand everything, or only the first levels."""
        for path, node in self._nodes_by_path.items():
            if everything or path.count("/") - 1 < OPEN_DEPTH:
                node.expand()
            else:
                node.collapse()

    def _add_row(self, it: ActorRow, label: Text) -> TreeNode[str]:
        parent = self._nodes_by_path.get(it.path.rpartition("/")[0], self.root)
        if it.is_leaf:
            return parent.add_leaf(label, it.path)
        return parent.add(label, it.path, expand=it.depth < OPEN_DEPTH)


def _name_width(width: int) -> int:
    return min(NAME_MAX, max(NAME_MIN, width - len(FIGURES) - MARGIN))


def _label(it: ActorRow, width: int) -> Text:
    room = _name_width(width) - GUIDE * it.depth + (GUIDE if it.is_leaf else 0)
    label = Text(f"{it.name:<{room}} ", style="" if it.is_leaf else "bold", no_wrap=True)
    label.append(f"{it.term:>6} ", style="yellow" if it.restarts else "")
    if it.state == "running":
        label.append(f"{it.mailbox:>11} ")
    else:
        label.append(f"{it.state:>11} ", style="bold red")
    label.append(f"{it.restarts:>8} ", style="yellow" if it.restarts else "dim")
    label.append(f"{rate(it.rate):>10}", style="" if it.rate else "dim")
    if it.why and width > NAME_MAX + len(FIGURES) + MARGIN + 10:
        label.append(f"  last: {it.why}", style="dim")
    return label
