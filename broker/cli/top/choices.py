"""What the user has chosen: page, sorting, filter, scrolling. Every choice makes a new value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from broker.cli.show.tables import natural_order
from broker.cli.top.section import Page, PageColumn, PageRow, Section

Place = tuple[str, str]
"""A page and a section of it."""


@dataclass(frozen=True, slots=True)
class Order:
    """`column`: the number of the column that is sorted by, None for the order of the rows."""

    column: int | None
    down: bool


@dataclass(frozen=True, slots=True)
class Choices:
    """`scrolls`: the first shown row of a section; `active`: the section that keys scroll."""

    page: int = 0
    needle: str = ""
    expanded: bool = False
    help: bool = False
    orders: Mapping[Place, Order] = field(default_factory=dict)
    scrolls: Mapping[Place, int] = field(default_factory=dict)
    active: Mapping[str, int] = field(default_factory=dict)

    def active_section(self, page: Page) -> int:
        """The number of the section that keys scroll."""
        return self.active.get(page.name, 0) % len(page.sections)

    def next_section(self, page: Page) -> "Choices":
        """Let the keys scroll the next section."""
        number = (self.active_section(page) + 1) % len(page.sections)
        return replace(self, active={**self.active, page.name: number})

    def order_of(self, page: Page, section: Section) -> Order:
        """What the section is sorted by."""
        keys = [it.key for it in section.columns]
        first = keys.index(section.order) if section.order else None
        return self.orders.get((page.name, section.title), Order(first, section.down))

    def scroll_of(self, page: Page, section: Section) -> int:
        """The first row to show; the rows may have become fewer since it was set."""
        return self.scrolls.get((page.name, section.title), 0)

    def scrolled(self, page: Page, section: Section, first: int) -> "Choices":
        """Show the section from this row on."""
        last = max(0, len(section.rows) - 1)
        place = (page.name, section.title)
        return replace(self, scrolls={**self.scrolls, place: min(max(0, first), last)})

    def sorted_by(self, page: Page, section: Section, column: int) -> "Choices":
        """Sort by a column; by the other direction if it was sorted by it. Figures: largest first.

        A trend cannot be sorted by.
        """
        kind = section.columns[column].kind
        if kind == "trend":
            return self
        before = self.order_of(page, section)
        down = not before.down if before.column == column else kind == "figure"
        return self._ordered(page, section, Order(column, down))

    def sorted_by_letter(self, page: Page, letter: str) -> "Choices":
        """Sort the section that has a column with this key; nothing if there is none."""
        for section in page.sections:
            for number, column in enumerate(section.columns):
                if column.key == letter:
                    return self.sorted_by(page, section, number)
        return self

    def sorted_beside(self, page: Page, step: int) -> "Choices":
        """Sort the active section by the next column to the right or left."""
        section = page.sections[self.active_section(page)]
        usable = [n for n, it in enumerate(section.columns) if it.kind != "trend"]
        now = self.order_of(page, section).column
        at = usable.index(now) + step if now in usable else (0 if step > 0 else -1)
        column = usable[at % len(usable)]
        down = section.columns[column].kind == "figure"
        return self._ordered(page, section, Order(column, down))

    def reversed(self, page: Page) -> "Choices":
        """Sort the active section the other way round."""
        section = page.sections[self.active_section(page)]
        before = self.order_of(page, section)
        # Without a column the order of the rows is the first name's.
        return self._ordered(page, section, Order(before.column or 0, not before.down))

    def _ordered(self, page: Page, section: Section, order: Order) -> "Choices":
        place = (page.name, section.title)
        # From the top: who sorts wants to see the first ones.
        return replace(
            self, orders={**self.orders, place: order}, scrolls={**self.scrolls, place: 0}
        )


def chosen_rows(section: Section, order: Order, needle: str) -> list[PageRow]:
    """The rows that match the filter, in order; unknown values last in both directions."""
    rows = [row for row in section.rows if _matches(section.columns, row, needle)]
    if order.column is None:
        return rows
    column = order.column
    known = [row for row in rows if row.values[column] is not None]
    unknown = [row for row in rows if row.values[column] is None]
    # Stable, so rows with equal values keep their own order in both directions.
    known.sort(key=lambda row: _sort_key(row.values[column]), reverse=order.down)
    return known + unknown


def _sort_key(value: Any) -> Any:
    return natural_order(value) if isinstance(value, str) else value


def _matches(columns: Sequence[PageColumn], row: PageRow, needle: str) -> bool:
    if not needle:
        return True
    words = [
        value
        for column, value in zip(columns, row.values, strict=True)
        if column.kind in ("name", "text") and isinstance(value, str)
    ]
    return any(needle.casefold() in word.casefold() for word in words)
