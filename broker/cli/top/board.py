"""The screen of `tidemark top`: tabs over one broker, refreshed until told to stop.

Owns what is drawn and which keys do what. A broker that goes away is said so, and looked for again.
"""

from typing import ClassVar

import anyio
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from broker.cli.top import rows
from broker.cli.top.forest import Forest
from broker.cli.top.look import Look, Rates, take
from broker.client import Deadlines, TidemarkError, connect

DEADLINES = Deadlines(connect_s=3.0, open_s=3.0, call_s=3.0, close_s=0.2)
"""Short: who looks at a screen wants to know soon that nobody answers."""
EVERY_S_MIN, EVERY_S_MAX = 0.1, 60.0
WIDE_COLUMNS = 130


class Board(App[None]):
    """See the module."""

    TITLE = "tidemark top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary, #heading { height: 1; }
    #heading { text-style: bold; }
    TabbedContent, ContentSwitcher, TabPane, TabPane > Vertical { height: 1fr; }
    TabPane { padding: 0; }
    Forest, DataTable { height: 1fr; scrollbar-size-horizontal: 1; }
    #broadcasts { height: 2fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("1", "tab('actors-tab')", "", show=False),
        Binding("2", "tab('channels-tab')", "", show=False),
        Binding("3", "tab('barriers-tab')", "", show=False),
        Binding("4", "tab('broadcasts-tab')", "", show=False),
        Binding("5", "tab('trouble-tab')", "", show=False),
        Binding("1-5", "", "panel", show=True, key_display="1-5"),
        Binding("p", "pause", "pause"),
        Binding("plus,equals_sign", "pace(0.5)", "faster", key_display="+"),
        Binding("minus", "pace(2)", "slower", key_display="-"),
        Binding("e", "unfold(True)", "expand"),
        Binding("c", "unfold(False)", "collapse"),
    ]

    def __init__(self, server: str, every_s: float) -> None:
        super().__init__()
        self.server = server
        self.every_s = every_s
        self.paused = False
        self.looks = 0
        self._before: Look | None = None
        self._shown: Look | None = None
        self._lost_s: float | None = None
        self._wake = anyio.Event()

    def compose(self) -> ComposeResult:
        yield Static(id="summary")
        with TabbedContent():
            with TabPane("1 Actors", id="actors-tab"), Vertical():
                yield Static(id="heading")
                yield Forest(id="actors")
            with TabPane("2 Channels", id="channels-tab"):
                yield DataTable(id="channels", cursor_type="row", zebra_stripes=True)
            with TabPane("3 Barriers", id="barriers-tab"):
                yield DataTable(id="barriers", cursor_type="row", zebra_stripes=True)
            with TabPane("4 Broadcasts, commits", id="broadcasts-tab"), Vertical():
                yield DataTable(id="broadcasts", cursor_type="row", zebra_stripes=True)
                yield DataTable(id="locks", cursor_type="row", zebra_stripes=True)
                yield DataTable(id="commits", cursor_type="row", zebra_stripes=True)
            with TabPane("5 Trouble", id="trouble-tab"):
                yield DataTable(id="trouble", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self._say(Text(f"{self.server}  looking for it"))
        self.query_one(Forest).focus()
        self.run_worker(self._follow(), exclusive=True)

    def on_resize(self) -> None:
        """The same look in another width."""
        self._draw()

    def action_tab(self, name: str) -> None:
        """Show one panel."""
        self.query_one(TabbedContent).active = name
        self.query_one(f"#{name.removesuffix('-tab')}").focus()

    def action_pause(self) -> None:
        """Hold the picture, or go on."""
        self.paused = not self.paused
        self._draw()
        self._wake.set()

    def action_pace(self, factor: float) -> None:
        """Look more often, or less."""
        self.every_s = min(EVERY_S_MAX, max(EVERY_S_MIN, self.every_s * factor))
        self._draw()
        self._wake.set()

    def action_unfold(self, everything: bool) -> None:
        """Open the whole tree, or only its top."""
        self.query_one(Forest).unfold(everything)

    async def _follow(self) -> None:
        while True:
            try:
                async with connect(self.server, deadlines=DEADLINES) as client:
                    while True:
                        if not self.paused:
                            self._learn(await take(client))
                        await self._rest()
            except TidemarkError as error:
                self._lose(str(error))
            await self._rest()

    async def _rest(self) -> None:
        self._wake = anyio.Event()
        with anyio.move_on_after(self.every_s):
            await self._wake.wait()

    def _learn(self, look: Look) -> None:
        self._before, self._shown, self._lost_s = self._shown, look, None
        self.looks += 1
        self._draw()

    def _lose(self, why: str) -> None:
        now_s = anyio.current_time()
        self._lost_s = now_s if self._lost_s is None else self._lost_s
        told = f" {self.server} is gone for {now_s - self._lost_s:.0f} s; looking for it: {why} "
        self._say(Text(told, style="bold white on red"))
        self._before = None

    def _draw(self) -> None:
        look = self._shown
        if look is None or not self._is_drawn():
            return
        rates = Rates.between(self._before, look)
        if self._lost_s is None:
            self._say(self._headline(look, rates))
        forest = self.query_one(Forest)
        self.query_one("#heading", Static).update(forest.heading(self.size.width))
        forest.grow(rows.branches(look, rates), self.size.width)
        wide = self.size.width >= WIDE_COLUMNS
        panels = {
            "channels": rows.channel_panel(look, rates, wide=wide),
            "barriers": rows.barrier_panel(look),
            "broadcasts": rows.broadcast_panel(look),
            "locks": rows.lock_panel(look),
            "commits": rows.commit_panel(look),
            "trouble": rows.trouble_panel(look),
        }
        for name, panel in panels.items():
            _fill(self.query_one(f"#{name}", DataTable), panel)

    def _headline(self, look: Look, rates: Rates) -> Text:
        state = look.health.state
        line = Text(f"{self.server} ")
        line.append(f" {state} ", "black on green" if state == "healthy" else "white on red")
        pace = "paused" if self.paused else f"{self.every_s:g} s"
        line.append(f" {pace}", style="dim")
        return line.append(f"  {rows.summary(look, rates)}")

    def _is_drawn(self) -> bool:
        """Looks go on a moment before the screen is there and after it is gone."""
        return bool(self.query("#summary")) and bool(self.query("#trouble"))

    def _say(self, line: Text) -> None:
        if not self._is_drawn():
            return
        line.no_wrap, line.overflow = True, "ellipsis"
        self.query_one("#summary", Static).update(line)


def _fill(table: "DataTable[Text]", panel: rows.Panel) -> None:
    """Replace what the table shows; whoever scrolled or chose a row stays there."""
    titles = [str(column.label) for column in table.ordered_columns]
    at, scrolled = table.cursor_row, table.scroll_offset
    table.clear(columns=titles != list(panel.columns))
    if not table.columns:
        table.add_columns(*panel.columns)
    for key, cells in panel.rows.items():
        style = "bold red" if key in panel.odd else ""
        table.add_row(*[_cell(cell, style) for cell in cells], key=key)
    table.move_cursor(row=min(at, len(panel.rows) - 1), animate=False)
    table.scroll_to(scrolled.x, scrolled.y, animate=False)


def _cell(text: str, style: str) -> Text:
    number = text[:1].isdigit() or text == rows.GONE
    return Text(text, style=style, justify="right" if number else "left")
