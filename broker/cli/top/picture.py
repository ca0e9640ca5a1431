"""The whole screen as lines, made of what is known and what the user has chosen."""

from dataclasses import dataclass

from rich.text import Text

from broker.cli.top.choices import Choices
from broker.cli.top.chrome import (
    FOOT_LINES,
    HEAD_LINES,
    HEIGHT_MIN,
    WIDTH_MIN,
    Status,
    foot,
    head,
    help_lines,
    too_small,
    waiting_lines,
)
from broker.cli.top.layout import Body, draw_page
from broker.cli.top.look import Look
from broker.cli.top.pages.actors_page import actors_page
from broker.cli.top.pages.channels_page import channels_page
from broker.cli.top.pages.collections_page import collections_page
from broker.cli.top.pages.groups_page import groups_page
from broker.cli.top.pages.health_page import health_page
from broker.cli.top.pages.readers_page import readers_page
from broker.cli.top.pages.segments_page import segments_page
from broker.cli.top.pages.work_page import work_page
from broker.cli.top.section import Page

NOTHING = Body((), {}, ())


@dataclass(frozen=True, slots=True)
class Picture:
    """What is on the screen. `page`: None before the first answer."""

    lines: tuple[Text, ...]
    body: Body = NOTHING
    page: Page | None = None


def page_of(look: Look, choices: Choices) -> Page:
    """The chosen page."""
    makers = (
        collections_page,
        readers_page,
        channels_page,
        work_page,
        None,
        health_page,
        segments_page,
        groups_page,
    )
    make = makers[choices.page]
    return actors_page(look, expanded=choices.expanded) if make is None else make(look)


def draw(look: Look | None, choices: Choices, status: Status, width: int, height: int) -> Picture:
    """Exactly `height` lines of at most `width` characters."""
    if width < WIDTH_MIN or height < HEIGHT_MIN:
        line = too_small(width, height)
        line.truncate(width)
        return Picture((line, *_blank(height - 1)))
    room = height - HEAD_LINES - FOOT_LINES
    top = head(look, status, choices.page, width)
    body, page = NOTHING, None
    if look is None:
        lines = waiting_lines(status.server, width)
    else:
        page = page_of(look, choices)
        if choices.help:
            lines = help_lines(page, width)
        else:
            body = draw_page(page, choices, width, room)
            lines = [*body.lines]
    lines = lines[:room]
    lines += _blank(room - len(lines))
    return Picture((*top, *lines, foot(choices.needle, width)), body, page)


def _blank(count: int) -> list[Text]:
    return [Text("") for _ in range(count)]
