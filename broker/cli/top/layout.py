"""Draws sections as lines of a given width. Numbers are never cut: a column fits or is left out."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells
from rich.text import Text

from broker.cli.show.figures import sparkline
from broker.cli.top.chart import draw_charts
from broker.cli.top.choices import Choices, Order, chosen_rows
from broker.cli.top.section import TREND_MAX, TREND_MIN, Page, PageColumn, PageRow, Section

GAP = 2
MARGIN = 2
"""For the mark of a row that needs attention, and of the active section."""
NAME_MIN, NAME_LEAST, TEXT_MIN = 16, 8, 8
INDENT = 2
ODD, ACTIVE = "! ", "> "
DOWN, UP = "▼", "▲"
ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Placed:
    """A column of a table that is drawn: its number, its first character and its width."""

    number: int
    column: PageColumn
    start: int
    width: int


@dataclass(frozen=True, slots=True)
class Body:
    """A drawn page. `headings`: by line, the section and its columns, for clicks.

    `shown`: the number of rows that each section has room for.
    """

    lines: tuple[Text, ...]
    headings: dict[int, tuple[int, tuple[Placed, ...]]]
    shown: tuple[int, ...]


def draw_page(page: Page, choices: Choices, width: int, height: int) -> Body:
    """The sections of a page below each other, each with its share of the height."""
    rows = [chosen_rows(it, choices.order_of(page, it), choices.needle) for it in page.sections]
    blanks = [_words(it, choices.needle, width) for it in page.sections]
    needs = [1 + (len(found) or len(words)) for found, words in zip(rows, blanks, strict=True)]
    heights = shares(needs, height - (len(needs) - 1))
    lines: list[Text] = []
    headings: dict[int, tuple[int, tuple[Placed, ...]]] = {}
    shown = []
    for number, section in enumerate(page.sections):
        order = choices.order_of(page, section)
        placed = fit(section.columns, rows[number], width)
        room = heights[number] - 1
        headings[len(lines)] = (number, placed)
        active = len(page.sections) > 1 and number == choices.active_section(page)
        lines.append(_heading(placed, order, active=active))
        if not rows[number]:
            lines += [Text(f"{' ' * MARGIN}{words}", "dim") for words in blanks[number][:room]]
        first = choices.scroll_of(page, section)
        part = visible(rows[number], first, room)
        lines += [draw_row(row, placed) for row in part.rows]
        if part.note:
            lines.append(Text(f"{' ' * MARGIN}{part.note}", "dim"))
        shown.append(len(part.rows))
        lines.append(Text(""))
    # The last line is blank: it parts the sections from the charts.
    charts = draw_charts(page.charts, width, height - len(lines))
    lines = [*lines, *map(Text, charts)] if charts else lines[:-1]
    return Body(tuple(lines[: max(0, height)]), headings, tuple(shown))


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the rows, and a note of which they are, "" for all."""

    rows: Sequence[PageRow]
    note: str


def visible(rows: Sequence[PageRow], first: int, room: int) -> Part:
    """The rows from `first` on that fit; fewer by one if they are not all, for the note."""
    if len(rows) <= room:
        return Part(rows, "")
    count = max(0, room - 1)
    first = max(0, min(first, len(rows) - count))
    if not count:
        return Part((), f"{len(rows):,} rows" if room else "")
    note = f"rows {first + 1:,}-{first + count:,} of {len(rows):,}"
    return Part(rows[first : first + count], note)


def shares(needs: Sequence[int], height: int) -> list[int]:
    """Divide a height: small needs are met whole, the others get equal parts of the rest."""
    given = [0] * len(needs)
    left = max(0, height)
    while left > 0:
        wanting = [n for n, need in enumerate(needs) if given[n] < need]
        if not wanting:
            break
        least = min(wanting, key=lambda n: given[n])
        given[least] += 1
        left -= 1
    return given


def fit(columns: Sequence[PageColumn], rows: Sequence[PageRow], width: int) -> tuple[Placed, ...]:
    """Choose the columns that fit and place them; what is left goes to names, texts and trends."""
    chosen = list(enumerate(columns))
    for leaves in sorted({it.leaves for it in columns if it.leaves}, reverse=True):
        if _width(chosen, NAME_MIN) <= width:
            break
        chosen = [(n, it) for n, it in chosen if it.leaves < leaves]
    least = NAME_MIN if _width(chosen, NAME_MIN) <= width else NAME_LEAST
    while len(chosen) > 1 and _width(chosen, least) > width:
        chosen.pop()
    widths = [_least(it, least) for _, it in chosen]
    left = width - _width(chosen, least)
    # Names first, but not so much that nothing is left for the rest; then what is left to them.
    for kind, most in (("name", width // 3), ("text", width), ("trend", width), ("name", width)):
        for at, (number, column) in enumerate(chosen):
            if column.kind == kind:
                wanted = min(most, _natural(number, column, rows))
                more = max(0, min(left, wanted - widths[at]))
                widths[at] += more
                left -= more
    placed, start = [], MARGIN
    for (number, column), room in zip(chosen, widths, strict=True):
        placed.append(Placed(number, column, start, room))
        start += room + GAP
    return tuple(placed)


def draw_row(row: PageRow, placed: Sequence[Placed]) -> Text:
    """One line; `!` in front of a row that needs attention, so that colour is not the only sign."""
    style = "bold red" if row.odd else ("bold" if row.strong else "")
    line = Text(ODD if row.odd else " " * MARGIN, style)
    for number, it in enumerate(placed):
        indent = INDENT * row.indent if number == 0 else 0
        line.append(_cell(it, row.values[it.number], indent), style)
        line.append(" " * GAP)
    line.rstrip()
    return line


def elide_middle(name: str, width: int) -> str:
    """The name, with `…` for its middle when it is wider than `width`."""
    if cell_len(name) <= width:
        return name
    if width < 1:
        return ""
    tail = (width - 1) // 2
    return _start(name, width - 1 - tail) + ELLIPSIS + _start(name[::-1], tail)[::-1]


def elide_end(words: str, width: int) -> str:
    """The words, with `…` for their end when they are wider than `width`."""
    if cell_len(words) <= width:
        return words
    return _start(words, width - 1) + ELLIPSIS if width > 0 else ""


def _start(text: str, width: int) -> str:
    """As much of the text as has at most this width; a wide character may leave a cell free."""
    return chop_cells(text, width)[0] if width > 0 and text else ""


def _cell(it: Placed, value: object, indent: int) -> str:
    match it.column.kind:
        case "trend":
            values = value if isinstance(value, list) else []
            return sparkline(values[-it.width :]).rjust(it.width)
        case "figure":
            return it.column.text(value).rjust(it.width)
        case "name":
            return _left(" " * indent + _plain(it, value), it.width, elide_middle)
        case _:
            return _left(_plain(it, value), it.width, elide_end)


def _plain(it: Placed, value: object) -> str:
    """The text without control characters, which could move the cursor of the terminal."""
    return "".join(each if each.isprintable() else "?" for each in it.column.text(value))


def _left(text: str, width: int, elide: Callable[[str, int], str]) -> str:
    shown = elide(text, width)
    return shown + " " * (width - cell_len(shown))


def _heading(placed: Sequence[Placed], order: Order, *, active: bool) -> Text:
    line = Text(ACTIVE if active else " " * MARGIN, "bold")
    for it in placed:
        title = it.column.title
        mark = ""
        if it.number == order.column:
            mark = DOWN if order.down else UP
        cell = Text(elide_end(title, it.width), "bold")
        key = title.find(it.column.key) if it.column.key else -1
        if key >= 0:
            cell.stylize("underline", key, key + 1)  # the letter that sorts by it
        right = it.column.kind == "figure"
        if mark and right:
            # Into the gap, so that the column needs no room for it.
            line.right_crop(1)
            cell = Text(mark, "bold") + cell
        elif mark:
            cell = cell + Text(mark, "bold") if cell.cell_len < it.width else cell
        width = it.width + (1 if mark and right else 0)
        blank = Text(" " * (width - cell.cell_len))
        line += (blank + cell if right else cell + blank) + Text(" " * GAP)
    line.rstrip()
    return line


def _words(section: Section, needle: str, width: int) -> list[str]:
    """What an empty section says."""
    words = section.empty
    if section.rows:
        words = f"Nothing here contains {needle!r}; Esc clears the filter."
    return textwrap.wrap(words, max(20, width - MARGIN)) or [""]


def _width(chosen: Sequence[tuple[int, PageColumn]], least: int) -> int:
    return MARGIN + sum(_least(it, least) for _, it in chosen) + GAP * (len(chosen) - 1)


def _least(column: PageColumn, least: int) -> int:
    match column.kind:
        case "figure":
            return max(column.room, len(column.title))
        case "name":
            return least if least < NAME_MIN else max(least, column.room)
        case "trend":
            return TREND_MIN
        case _:
            return TEXT_MIN


def _natural(number: int, column: PageColumn, rows: Sequence[PageRow]) -> int:
    if column.kind == "trend":
        return TREND_MAX
    longest = max(
        (
            cell_len(column.text(row.values[number])) + (INDENT * row.indent if number == 0 else 0)
            for row in rows
        ),
        default=0,
    )
    return max(len(column.title) + 1, longest)
