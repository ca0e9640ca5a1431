"""Tables that suit a terminal of any width without ever cutting what stands in a cell.

It owns which columns leave when there is no room, and how a moment is written. It prints nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

WIDEST = 10_000
"""Columns of a table that nobody folds."""


@dataclass(frozen=True, slots=True)
class Column:
    """`cells` from the top; `short` instead of them in a narrow table.

    While the table is too wide, the column with the highest `leaves` leaves; 0 always stays.
    """

    title: str
    cells: Sequence[str]
    short: Sequence[str] = ()
    leaves: int = 0


def fitted(columns: Sequence[Column], console: Console) -> Table:
    """The widest form that fits; when none does, the narrowest, which the terminal folds."""
    table = _table(columns, short=False)
    for least in sorted({it.leaves for it in columns}, reverse=True):
        if table_width(table, console) <= console.width:
            return table
        table = _table([it for it in columns if it.leaves <= least], short=True)
    return table


def table_width(table: Table, console: Console) -> int:
    """Columns of the terminal that the table takes when nothing of it is folded or cut."""
    return console.measure(table, options=console.options.update(width=WIDEST)).maximum


def natural_order(name: str) -> list[tuple[int, str]]:
    """A sort key under which numbers count as numbers: `dml_2` comes before `dml_10`."""
    return [(int(digits or 0), text) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]


def moment(unix_ms: int) -> str:
    """UTC to the second, or `never` for 0."""
    return _written(unix_ms, "%Y-%m-%d %H:%M:%SZ")


def short_moment(unix_ms: int, now_ms: int) -> str:
    """The time alone on the day of `now_ms`, the date alone on others: an old one must show."""
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
        table.add_column(it.title, no_wrap=True)
    shown = [it.short if short and it.short else it.cells for it in columns]
    for row in zip(*shown, strict=True):
        table.add_row(*row)
    return table
