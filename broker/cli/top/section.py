"""What a page consists of: sections of rows with columns, before anything is drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from broker.cli.show.figures import (
    COUNT_WIDTH,
    SIZE_WIDTH,
    SPAN_WIDTH,
    count_text,
    size_text,
    span_text,
)
from broker.cli.top.chart import Chart

Kind = Literal["figure", "name", "text", "trend"]
UNKNOWN: Final = "-"
TREND_MIN, TREND_MAX = 12, 60


@dataclass(frozen=True, slots=True)
class PageColumn:
    """One column; `key` is the letter that sorts by it, or "".

    A figure is right-aligned and has `room` characters, which its text never exceeds. A name has
    `room` or more, if the table can have them, and is shortened in the middle. A text is shortened
    at its end. A trend is drawn. While a table is too wide, the column with the highest `leaves` is
    left out; 0 always stays.
    """

    key: str
    title: str
    kind: Kind = "figure"
    room: int = 0
    form: Callable[[Any], str] = str
    leaves: int = 0

    def text(self, value: Any) -> str:
        """The whole text of a value; `-` for None."""
        return UNKNOWN if value is None else self.form(value)


@dataclass(frozen=True, slots=True)
class PageRow:
    """`values`: one for each column. `odd`: it needs attention. `indent`: of a tree's row."""

    values: tuple[Any, ...]
    odd: bool = False
    indent: int = 0
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A table. `empty`: what would be here and how to get it, when there are no rows.

    `order`: the key of the column that it is sorted by at first, "" for the order of the rows;
    `down`: largest first.
    """

    title: str
    columns: tuple[PageColumn, ...]
    rows: Sequence[PageRow]
    empty: str
    order: str = ""
    down: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the screen."""

    name: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    """What the columns mean, for the help."""
    charts: tuple[Chart, ...] = ()
    """Drawn below the sections where there is room."""


def name_column(key: str, title: str, room: int = 0) -> PageColumn:
    """A name, which is never left out."""
    return PageColumn(key, title, "name", room)


def text_column(title: str, leaves: int = 0) -> PageColumn:
    """Words, shortened at the end."""
    return PageColumn("", title, "text", leaves=leaves)


def count_column(key: str, title: str, leaves: int = 0) -> PageColumn:
    """A number of things."""
    return PageColumn(key, title, room=COUNT_WIDTH, form=count_text, leaves=leaves)


def size_column(key: str, title: str, leaves: int = 0) -> PageColumn:
    """A number of bytes."""
    return PageColumn(key, title, room=SIZE_WIDTH, form=size_text, leaves=leaves)


def span_column(key: str, title: str, leaves: int = 0) -> PageColumn:
    """A length of time, in seconds."""
    return PageColumn(key, title, room=SPAN_WIDTH, form=span_text, leaves=leaves)


def trend_column(title: str, leaves: int = 0) -> PageColumn:
    """Rates of the last minutes, oldest first; None where nothing was measured."""
    return PageColumn("", title, "trend", leaves=leaves)


def without_trends(page: Page) -> Page:
    """The page for one look, which has no history to draw."""
    return replace(page, sections=tuple(_without_trends(it) for it in page.sections), charts=())


def _without_trends(section: Section) -> Section:
    kept = [n for n, it in enumerate(section.columns) if it.kind != "trend"]
    return replace(
        section,
        columns=tuple(section.columns[n] for n in kept),
        rows=[replace(row, values=tuple(row.values[n] for n in kept)) for row in section.rows],
    )
