"""The tree of actors on the screen: grows, shrinks and changes in place, so that folds stay.

Owns the nodes by path and the columns beside their names.
"""

from collections.abc import Sequence
from typing import Any

from rich.text import Text
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from broker.cli.top.rows import Branch, rate

OPEN_DEPTH = 2
"""Levels that are open at first: deeper ones are there once for each channel."""
GUIDE = 2
NAME_MIN, NAME_MAX = 30, 64
FIGURES = f"{'term':>6} {'mailbox':>11} {'restarts':>8} {'handled/s':>10}"
MARGIN = 4
"""For the scroll bar and the mark of a node that can be opened."""


class Forest(Tree[str]):
    """See the module."""

    def __init__(self, **options: Any) -> None:
        super().__init__("", **options)
        self.show_root = False
        self.guide_depth = GUIDE
        self.auto_expand = True
        self._planted: dict[str, TreeNode[str]] = {}

    def heading(self, width: int) -> Text:
        """What stands above the columns."""
        return Text(f"{'  actor':<{_name_width(width) + 2}} {FIGURES}", no_wrap=True)

    def grow(self, branches: Sequence[Branch], width: int) -> None:
        """Show these, and no others."""
        alive = {it.path for it in branches}
        for path in sorted(set(self._planted) - alive, key=len, reverse=True):
            self._planted.pop(path).remove()
        for it in branches:
            label = _label(it, width)
            node = self._planted.get(it.path)
            if node is None:
                self._planted[it.path] = self._plant(it, label)
            elif str(node.label) != str(label):
                node.set_label(label)

    def unfold(self, everything: bool) -> None:
        """Open all of it, or as it was at first."""
        for path, node in self._planted.items():
            if everything or path.count("/") - 1 < OPEN_DEPTH:
                node.expand()
            else:
                node.collapse()

    def _plant(self, it: Branch, label: Text) -> TreeNode[str]:
        parent = self._planted.get(it.path.rpartition("/")[0], self.root)
        if it.is_leaf:
            return parent.add_leaf(label, it.path)
        return parent.add(label, it.path, expand=it.depth < OPEN_DEPTH)


def _name_width(width: int) -> int:
    return min(NAME_MAX, max(NAME_MIN, width - len(FIGURES) - MARGIN))


def _label(it: Branch, width: int) -> Text:
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
