"""The lines above and below a page: state and rates of the broker, pages, keys, help."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from broker.cli.show.figures import count_text, size_text, span_text, sparkline
from broker.cli.top.layout import elide_end, elide_middle
from broker.cli.top.look import TOTAL_IN, TOTAL_OUT, Look
from broker.cli.top.section import TREND_MAX, UNKNOWN, Page

PAGES = ("collections", "lag", "channels", "work", "actors", "health", "segments", "groups")
HEALTH, SEGMENTS = PAGES.index("health"), PAGES.index("segments")
GROUPS = PAGES.index("groups")
SHORT = {"collections": "colls", "channels": "chans", "segments": "segs"}
"""Names of pages in a narrow window."""
HEAD_LINES, FOOT_LINES = 3, 1
WIDTH_MIN, HEIGHT_MIN = 60, 10
KEYS = (
    ("q", "quit"),
    ("1-8", "page"),
    ("/", "filter"),
    ("< >", "sort"),
    ("r", "reverse"),
    ("p", "pause"),
    ("+ -", "pace"),
)
HELP = (
    ("1-8, left, right", "choose a page"),
    ("an underlined letter", "sort by that column; again: the other way round"),
    ("< >, a click", "sort by the column beside, or by the one clicked"),
    ("r", "reverse the order"),
    ("/", "show only rows that contain a word; Esc: all rows"),
    ("up down PgUp PgDn", "scroll; Tab chooses the table, marked by >"),
    ("p, + -", "pause; refresh more often, or less"),
    ("e", "page 5: every actor, or the folded tree"),
    ("?, q", "this help, which any key leaves; quit"),
)


@dataclass(frozen=True, slots=True)
class Status:
    """What the screen knows besides the state of the broker.

    `lost`: the error of a broker that does not answer, "" for one that does; `lost_s`: since when.
    """

    server: str
    pace_s: float
    paused: bool = False
    lost: str = ""
    lost_s: float = 0.0
    as_of: str = ""


def head(look: Look | None, status: Status, page: int, width: int) -> list[Text]:
    """The lines above the page."""
    if status.lost:
        first = _lost(look, status, width)
    elif look is None:
        first = [Text(f"tidemark  connecting to {status.server} ..."), Text("")]
    else:
        first = [_state(look, status, width), _rates(look, width)]
    return [*first, _tabs(look, page, width)]


def foot(needle: str, width: int) -> Text:
    """The keys; the filter while there is one."""
    line = Text("? help", "bold")
    pairs = [("Esc", f"clear filter {needle!r}"), *KEYS] if needle else KEYS
    for key, what in pairs:
        if line.cell_len + len(key) + len(what) + 4 > width:
            break
        line.append("   ").append(key, "bold").append(f" {what}", "not bold")
    return line


def help_lines(page: Page, width: int) -> list[Text]:
    """The keys, and what the columns of the page mean."""
    room = max(len(keys) for keys, _ in HELP) + 2
    lines = []
    for keys, what in HELP:
        first, *more = textwrap.wrap(what, max(20, width - room - 2))
        lines.append(Text(f"  {keys:<{room}}", "bold").append(first, "not bold"))
        lines += [Text(" " * (room + 2) + each) for each in more]
    lines.append(Text(""))
    for note in page.notes:
        first, *more = textwrap.wrap(note, max(20, width - 4))
        lines += [Text(f"  {first}"), *[Text(f"    {each}") for each in more]]
    return lines


def waiting_lines(server: str, width: int) -> list[Text]:
    """What stands in the place of a page before the first answer."""
    words = (
        f"Waiting for a broker at {server}. Start one with `tidemark serve`, or name another one"
        " with --server HOST:PORT or TIDEMARK_SERVER."
    )
    return [Text(f"  {each}") for each in textwrap.wrap(words, max(20, width - 4))]


def too_small(width: int, height: int) -> Text:
    """What a window says that is too small for a page."""
    return Text(f"{width}x{height} is too small: top needs {WIDTH_MIN}x{HEIGHT_MIN}")


def _state(look: Look, status: Status, width: int) -> Text:
    health = look.broker.health
    healthy = health.state == "healthy"
    line = Text("tidemark ", "bold").append(elide_middle(status.server, width // 3), "not bold")
    line.append(" ").append(
        f" {health.state} " if healthy else f" ! {health.state} ",
        "reverse green" if healthy else "reverse bold red",
    )
    pace = "PAUSED" if status.paused else f"every {status.pace_s:g} s"
    restarts = sum(it.restarts for it in look.broker.actors)
    parts = [pace, f"up {span_text(look.since_s(health.started_ms) or 0)}"]
    parts.append(f"{health.channels_open}/{health.channels_total} pchannels")
    if health.consumption_paused:
        parts.insert(1, "CONSUMPTION PAUSED")
    if restarts:
        parts.append(f"{count_text(restarts)} restarts")
    txns = sum(it.open_txns for it in look.broker.channels)
    parts.append(f"{size_text(sum(it.size_bytes for it in look.broker.channels))} on disk")
    parts.append(f"{count_text(txns)} open txns")
    parts.append(f"version {health.version}")
    for part in parts:
        if line.cell_len + len(part) + 2 <= width:
            line.append(f"  {part}", "bold" if part.isupper() else "")
    return line


def _rates(look: Look, width: int) -> Text:
    """In and out beside each other, each with a trend as wide as there is room for."""
    total = look.rates.total()
    half = (width - 2) // 2
    into, out = _rate("in"), _rate("out")
    if total is not None:
        into = _rate("in", total.messages, total.bytes)
        out = _rate("out", total.delivered, total.delivered_bytes)
    line = Text("")
    for words, name in ((into, TOTAL_IN), (out, TOTAL_OUT)):
        room = min(TREND_MAX, half - len(words) - 1)
        trend = sparkline(look.trend(name)[-room:]) if room >= 4 else ""
        line.append(f"{words} {trend}".ljust(half)).append("  ")
    line.rstrip()
    return line


def _rate(word: str, messages: float | None = None, size: float | None = None) -> str:
    count = UNKNOWN if messages is None else count_text(messages)
    amount = UNKNOWN if size is None else size_text(size)
    return f"{word} {count:>5} msg/s {amount:>8}/s"


def _lost(look: Look | None, status: Status, width: int) -> list[Text]:
    since = f"! no answer for {span_text(status.lost_s)}"
    retry = "paused: no retry" if status.paused else f"retries every {status.pace_s:g} s"
    room = width - len(since) - len(retry) - 10
    first = f"{since} from {elide_middle(status.server, max(12, room))}; {retry}"
    old = f"figures of {status.as_of}; " if look is not None else ""
    return [
        Text(elide_end(first, width).ljust(width), "reverse bold red"),
        Text(elide_end(f"! {old}{status.lost}", width), "red"),
    ]


def _tabs(look: Look | None, page: int, width: int) -> Text:
    """The pages; the chosen one in brackets, so that colour is not the only sign."""
    line = Text("")
    for number, title in enumerate(_titles(look, page, width)):
        chosen = number == page
        line.append(f"[{title}]" if chosen else f" {title} ", "bold reverse" if chosen else "")
    return line


def _titles(look: Look | None, page: int, width: int) -> list[str]:
    """Number and name of each page; of the others short ones, or numbers, where it is narrow."""
    titles = _numbered(PAGES)
    mark = ""
    if look is not None:
        health = look.broker.health
        odd = len(health.troubles) + len(health.damages) + len(look.broker.missing)
        mark = f" !{count_text(odd)}" if odd else ""
    if _room(titles, mark) > width:
        titles = _numbered([SHORT.get(it, it) if n != page else it for n, it in enumerate(PAGES)])
    if _room(titles, mark) > width:
        titles = [it if n == page else it.split()[0] for n, it in enumerate(titles)]
    titles[HEALTH] += mark
    return titles


def _numbered(names: Sequence[str]) -> list[str]:
    return [f"{number} {name}" for number, name in enumerate(names, start=1)]


def _room(titles: Sequence[str], mark: str) -> int:
    return sum([len(it) + 2 for it in titles]) + len(mark)


def page_at(column: int, look: Look | None, page: int, width: int) -> int | None:
    """The page whose tab is at this column of the line of tabs; `page` is the chosen one."""
    end = 0
    for number, title in enumerate(_titles(look, page, width)):
        start, end = end, end + len(title) + 2
        if start <= column < end:
            return number
    return None


def joined(lines: Sequence[Text]) -> str:
    """The lines as plain text, without blanks at their ends."""
    return "\n".join(line.plain.rstrip() for line in lines)
