"""`tidemark top` on a terminal, and `tidemark top --once` without one."""

import sys
from dataclasses import dataclass

import anyio

from broker.cli.session import USAGE, address_of, connection_of, fail, say_waits, with_client
from broker.cli.standard_streams import end_on_closed_pipe
from broker.cli.top.ascii_text import ascii_text, shows_unicode
from broker.cli.top.broker_state import BrokerState, read_state
from broker.cli.top.choices import Choices
from broker.cli.top.chrome import (
    GROUPS,
    HEIGHT_MIN,
    PAGES,
    SEGMENTS,
    WIDTH_MIN,
    Status,
    head,
    joined,
)
from broker.cli.top.layout import draw_page
from broker.cli.top.look import Look
from broker.cli.top.picture import page_of
from broker.cli.top.rates import History, Rates
from broker.cli.top.section import without_trends
from broker.client import Client

WIDTH = 100
"""Without --width, where stdout is a file or a pipe."""
ALL_LINES = 1_000_000


@dataclass(frozen=True, slots=True)
class Once:
    """What to print. `page`: a name or its number. `width`, `height`: None for what it needs."""

    page: str
    width: int | None
    height: int | None
    every_s: float


def show_once(server: str, once: Once) -> None:
    """Print one page as plain text, with rates over `every_s`."""
    number = page_number(once.page)

    async def looks(client: Client) -> tuple[BrokerState, BrokerState]:
        segments, groups = number == SEGMENTS, number == GROUPS
        first = await read_state(client, segments=segments, groups=groups)
        await anyio.sleep(once.every_s)
        return first, await read_state(client, first, segments=segments, groups=groups)

    before, broker = with_client(server, looks)
    look = Look(broker, Rates.between(before, broker), History())
    choices = Choices(page=number, expanded=True)
    width = once.width or _terminal_width()
    status = Status(address_of(server), once.every_s)
    top = head(look, status, number, width)
    page = without_trends(page_of(look, choices))
    body = draw_page(page, choices, width, (once.height or ALL_LINES) - len(top))
    text = joined([*top, *body.lines])
    if not shows_unicode(sys.stdout.encoding):
        text = ascii_text(text)
    with end_on_closed_pipe():
        sys.stdout.write(f"{text}\n")


def run_screen(server: str, every_s: float, page: str) -> None:
    """Run the screen until `q`. Exit code 2 without a terminal."""
    chosen, number = connection_of(server), page_number(page)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # textual draws on stderr
        fail("top needs a terminal; pass --once to print one page", USAGE)
    from broker.cli.top.screen import TopScreen

    say_waits(lambda _: None)  # the screen shows them
    ascii_only = not shows_unicode(sys.stderr.encoding)
    screen = TopScreen(chosen.server, every_s, number, ascii_only=ascii_only)
    screen.cluster, screen.tls, screen.token = chosen.cluster, chosen.tls, chosen.token
    screen.run()


def page_number(page: str) -> int:
    """The number of a page, from 0 on. Ends the program when there is no such page."""
    if page in PAGES:
        return PAGES.index(page)
    if page.isascii() and page.isdecimal() and 0 < int(page) <= len(PAGES):
        return int(page) - 1
    pages = ", ".join(PAGES)
    return fail(f"there is no page {page!r}; use one of {pages}, or its number", USAGE)


def _terminal_width() -> int:
    import shutil

    return max(WIDTH_MIN, shutil.get_terminal_size((WIDTH, HEIGHT_MIN)).columns)
