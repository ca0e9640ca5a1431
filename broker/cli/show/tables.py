"""Builds tables that fit a terminal of any width, by dropping columns instead of cutting cells."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

_FIGURE = re.compile(r"-|[0-9][0-9,.]*")
WIDEST = 10_000
"""A width in which no table is folded."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `short`: the cells in a narrow table.

    While the table is too wide, the column with the highest `leaves` is dropped; 0 always stays.
    """

    title: str
    cells: Sequence[str]
    short: Sequence[str] = ()
    leaves: int = 0


def fitted(columns: Sequence[Column], console: Console) -> Table:
    """The widest form that fits, or the narrowest one, which the terminal then folds."""
    table = _table(columns, short=False)
    for least in sorted({it.leaves for it in columns}, reverse=True):
        if table_width(table, console) <= console.width:
            return table
        table = _table([it for it in columns if it.leaves <= least], short=True)
    return table


def table_width(table: Table, console: Console) -> int:
    """The width of the table when nothing is folded or cut."""
    return console.measure(table, options=console.options.update(width=WIDEST)).maximum


def natural_order(name: str) -> list[tuple[str, int]]:
    """A sort key that compares numbers as numbers: `dml_2` comes before `dml_10`."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]


def moment(unix_ms: int) -> str:
    """UTC to the second, or `never` for 0."""
    return _written(unix_ms, "%Y-%m-%d %H:%M:%SZ")


def short_moment(unix_ms: int, now_ms: int) -> str:
    """The time on the day of `now_ms`, else the date."""
    same_day = _at(unix_ms).date() == _at(now_ms).date()
    return _written(unix_ms, "%H:%M:%SZ" if same_day else "%Y-%m-%d")


def _written(unix_ms: int, form: str) -> str:
    return _at(unix_ms).strftime(form) if unix_ms else "never"


def _at(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms // 1000, tz=UTC)


def _table(columns: Sequence[Column], *, short: bool) -> Table:
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", row_styles=("", "dim")
    )
    for it in columns:
        right = all(_FIGURE.fullmatch(cell) for cell in it.cells)
        table.add_column(it.title, no_wrap=True, justify="right" if right else "left")
    shown = [it.short if short and it.short else it.cells for it in columns]
    for row in zip(*shown, strict=True):
        table.add_row(*row)
    return table
