"""The screen of `tidemark top` on a terminal: keys, clicks and polling around `picture`.

When the broker goes away, the first line says so and for how long, the last figures stay, and the
screen keeps trying to reconnect.
"""

from dataclasses import replace
from typing import ClassVar

import anyio
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from broker.cli.client_connection import DEFAULT_CLUSTER
from broker.cli.show.tables import short_moment
from broker.cli.top.ascii_text import ascii_text
from broker.cli.top.broker_state import BrokerState, read_state
from broker.cli.top.choices import Choices
from broker.cli.top.chrome import GROUPS, HEAD_LINES, PAGES, SEGMENTS, Status, page_at
from broker.cli.top.look import Look, note_rates
from broker.cli.top.picture import Picture, draw
from broker.cli.top.rates import History, Rates
from broker.client import Client, Deadlines, TidemarkError, Tls, connect

DEADLINES = Deadlines(connect_s=3.0, open_s=3.0, call_s=3.0, close_s=0.2)
"""Short, because a user at a screen wants to know soon that the broker does not answer."""
NUMBERS = "".join(str(number + 1) for number in range(len(PAGES)))
EVERY_S_MIN, EVERY_S_MAX = 0.1, 60.0


class TopScreen(App[None]):
    """The application behind `tidemark top`."""

    TITLE = "tidemark top"
    # The only field is that of the filter, which takes the keys only when it is asked for.
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #picture { height: 1fr; background: ansi_default; color: ansi_default; }
    #filter { dock: bottom; height: 1; border: none; padding: 0; display: none;
              background: ansi_default; color: ansi_default; }
    #filter.open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("p", "pause", "pause"),
        Binding("plus,equals_sign", "pace(0.5)", "faster"),
        Binding("minus", "pace(2)", "slower"),
        Binding("slash", "filter", "filter"),
        Binding("escape", "clear", "all rows"),
        Binding("question_mark", "help", "help"),
        Binding("left", "turn(-1)", "page before"),
        Binding("right", "turn(1)", "next page"),
        Binding("tab", "section", "next table", priority=True),
        Binding("less_than_sign,comma", "sort_beside(-1)", "sort left"),
        Binding("greater_than_sign,full_stop", "sort_beside(1)", "sort right"),
        Binding("r", "reverse", "reverse"),
        Binding("e", "expand", "expand"),
        Binding("up", "scroll(-1)", "up"),
        Binding("down", "scroll(1)", "down"),
        Binding("pageup", "scroll_page(-1)", "page up"),
        Binding("pagedown", "scroll_page(1)", "page down"),
        Binding("home", "scroll(-1000000000)", "first"),
        Binding("end", "scroll(1000000000)", "last"),
    ]

    def __init__(
        self, server: str, every_s: float, page: int = 0, *, ascii_only: bool = False
    ) -> None:
        # The terminal's own colours, so that it is readable on a dark and on a light one.
        super().__init__(ansi_color=True)
        self.server = server
        self.cluster = DEFAULT_CLUSTER
        self.tls: Tls | None = None
        self.token = ""
        self.every_s = every_s
        self.ascii_only = ascii_only
        self.paused = False
        self.polls = 0
        self.choices = Choices(page)
        self.picture = Picture(())
        self._history = History()
        self._rates = Rates()
        self._before: BrokerState | None = None
        self._shown: BrokerState | None = None
        self._lost = ""
        self._lost_at_s = 0.0
        self._wake = anyio.Event()

    def compose(self) -> ComposeResult:
        yield Static(id="picture")
        yield Input(id="filter", placeholder="rows that contain ...", compact=True)

    def on_mount(self) -> None:
        """Start polling the broker."""
        self.redraw()
        self.run_worker(self._poll(), exclusive=True)

    def on_resize(self) -> None:
        """Draw the same state in the new size."""
        self.redraw()

    def look(self) -> Look | None:
        """What is drawn; None before the first answer."""
        shown = self._shown
        return None if shown is None else Look(shown, self._rates, self._history)

    def redraw(self) -> None:
        """Draw what is known, as the user wants to see it."""
        # Polling runs a moment longer than the widgets.
        if not self.query("#picture"):
            return
        self.picture = draw(
            self.look(), self.choices, self._status(), self.size.width, self.size.height
        )
        shown = Text("\n").join(self.picture.lines)
        if self.ascii_only:
            shown.plain = ascii_text(shown.plain)  # as long, so the styles stay in place
        self.query_one("#picture", Static).update(shown)

    # ---- keys and clicks --------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Pages by number, sorting by letter; any key leaves the help."""
        if self.choices.help:
            # This comes before the key's action; that of `?` closes the help, too.
            if event.key != "question_mark":
                self._see(replace(self.choices, help=False))
        elif event.character and event.character in NUMBERS:
            self._see(replace(self.choices, page=int(event.character) - 1))
        elif event.character and self.picture.page is not None:
            self._see(self.choices.sorted_by_letter(self.picture.page, event.character))

    def on_click(self, event: events.Click) -> None:
        """A tab opens its page, a heading sorts by its column."""
        line = event.screen_y - HEAD_LINES
        if line == -1:
            page = page_at(event.screen_x, self.look(), self.choices.page, self.size.width)
            if page is not None:
                self._see(replace(self.choices, page=page, help=False))
        page_shown = self.picture.page
        if page_shown is None or line not in self.picture.body.headings:
            return
        section, placed = self.picture.body.headings[line]
        for it in placed:
            # One character before a figure belongs to it: the mark of the order stands there.
            if it.start - 1 <= event.screen_x < it.start + it.width:
                self._see(
                    self.choices.sorted_by(page_shown, page_shown.sections[section], it.number)
                )

    def action_pause(self) -> None:
        """Pause or continue."""
        self.paused = not self.paused
        self._see(self.choices)
        self._wake.set()

    def action_pace(self, factor: float) -> None:
        """Refresh more often, or less."""
        self.every_s = min(EVERY_S_MAX, max(EVERY_S_MIN, self.every_s * factor))
        self._see(self.choices)
        self._wake.set()

    def action_help(self) -> None:
        """Show the keys and what the columns mean, or the page again."""
        self._see(replace(self.choices, help=not self.choices.help))

    def action_turn(self, step: int) -> None:
        """Show the page before or after."""
        self._see(replace(self.choices, page=(self.choices.page + step) % len(PAGES)))

    def action_section(self) -> None:
        """Choose the table that keys scroll and sort."""
        if self.picture.page is not None:
            self._see(self.choices.next_section(self.picture.page))

    def action_sort_beside(self, step: int) -> None:
        """Sort by the column beside the present one."""
        if self.picture.page is not None:
            self._see(self.choices.sorted_beside(self.picture.page, step))

    def action_reverse(self) -> None:
        """Reverse the order."""
        if self.picture.page is not None:
            self._see(self.choices.reversed(self.picture.page))

    def action_expand(self) -> None:
        """Show every actor, or fold the tree again."""
        self._see(replace(self.choices, expanded=not self.choices.expanded))

    def action_scroll(self, step: int) -> None:
        """Scroll the chosen table by some rows."""
        page = self.picture.page
        if page is None or not self.picture.body.shown:
            return
        number = self.choices.active_section(page)
        section = page.sections[number]
        last = len(section.rows) - self.picture.body.shown[number]
        first = min(self.choices.scroll_of(page, section), max(0, last))
        self._see(self.choices.scrolled(page, section, min(first + step, max(0, last))))

    def action_scroll_page(self, step: int) -> None:
        """Scroll the chosen table by what it shows."""
        page = self.picture.page
        if page is not None and self.picture.body.shown:
            shown = self.picture.body.shown[self.choices.active_section(page)]
            self.action_scroll(step * max(1, shown - 1))

    def action_filter(self) -> None:
        """Ask for a word."""
        field = self.query_one("#filter", Input)
        field.value = self.choices.needle
        field.add_class("open")
        field.focus()

    def action_clear(self) -> None:
        """Show all rows again."""
        self._close_filter()
        self._see(replace(self.choices, needle=""))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the word is typed."""
        self._see(replace(self.choices, needle=event.value, scrolls={}))

    def on_input_submitted(self) -> None:
        """Keep the filter, and give the keys back to the page."""
        self._close_filter()

    def _close_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.remove_class("open")
        self.set_focus(None)

    def _see(self, choices: Choices) -> None:
        # Every key leaves the help, also one that does something else.
        turned = choices.page != self.choices.page
        self.choices = replace(choices, help=choices.help and not self.choices.help)
        if turned and choices.page in (SEGMENTS, GROUPS):
            self._wake.set()  # they are asked for while this page is shown
        self.redraw()

    # ---- the broker -------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            try:
                at, cluster = self.server, self.cluster
                tls, token = self.tls, self.token
                connecting = connect(at, cluster=cluster, deadlines=DEADLINES, tls=tls, token=token)
                async with connecting as client:
                    while True:
                        if not self.paused:
                            self._update(await self._read(client))
                        await self._wait()
            except TidemarkError as error:
                self._note_lost(str(error))
            await self._wait()

    async def _read(self, client: Client) -> BrokerState:
        page = self.choices.page
        segments, groups = page == SEGMENTS, page == GROUPS
        return await read_state(client, self._before, segments=segments, groups=groups)

    async def _wait(self) -> None:
        self._wake = anyio.Event()
        with anyio.move_on_after(self.every_s):
            await self._wake.wait()

    def _update(self, broker: BrokerState) -> None:
        # Not from what is shown: after an outage, that has the counts from before it.
        self._rates = Rates.between(self._before, broker)
        note_rates(self._history, broker, self._rates)
        self._before = self._shown = broker
        self._lost = ""
        self.polls += 1
        self.redraw()

    def _note_lost(self, why: str) -> None:
        if not self._lost:
            self._lost_at_s = anyio.current_time()
        self._lost, self._before = why, None
        self.redraw()

    def _status(self) -> Status:
        return Status(
            server=self.server,
            pace_s=self.every_s,
            paused=self.paused,
            lost=self._lost,
            lost_s=anyio.current_time() - self._lost_at_s if self._lost else 0.0,
            as_of=short_moment(self._shown.at_ms, self._shown.at_ms) if self._shown else "",
        )
